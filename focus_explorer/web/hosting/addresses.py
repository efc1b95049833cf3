"""Names under which the page answers, and origins whose requests it takes.

A browser sends the page's own address as `Host`. After DNS rebinding it sends the attacker's name there, and a request
of another site names that site as `Origin`; the page takes neither.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from focus_explorer.errors import InputError

WILDCARDS = ("0.0.0.0", "::")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*)(:[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address: localhost, 127.0.0.0/8 or ::1."""
    name = _bare(host)
    return name == "localhost" or (_is_ip(name) and ipaddress.ip_address(name).is_loopback)


class Addresses:
    """The names the page answers to.

    Args:
        host: address it is served on. On all addresses of the machine (0.0.0.0) it answers to every IP address too:
            a rebound name is never one.
        allowed: further names, such as the one of a proxy; `NAME:PORT` where requests come from a port of their own.

    Raises:
        InputError: an allowed name is none.
    """

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self._any_ip = host in WILDCARDS
        self._allowed = {_split(name) for name in map(_checked, allowed)}
        self._names = {_bare(host), *(name for name, _ in self._allowed)}
        if self._any_ip:
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def answers_to(self, host: str) -> bool:
        """Whether a `Host` header, with or without its port, names this page."""
        name = _split(host)[0]
        return is_loopback(name) or name in self._names or (self._any_ip and _is_ip(name))

    def takes_from(self, origin: str, host: str) -> bool:
        """Whether an `Origin` header is the page's own: the same name and port as `host`, or an allowed name."""
        try:
            parts = urlsplit(origin)
            name, port = _bare(parts.hostname or ""), parts.port
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not name:
            return False
        usual = {"http": 80, "https": 443}[parts.scheme]
        own_name, own_port = _split(host)
        same = name == own_name and (port or usual) == (own_port or usual)
        return same or (name, None if port == usual else port) in self._allowed


def _checked(name: str) -> str:
    if not NAME.fullmatch(name) and not _is_ip(_split(name)[0]):
        raise InputError(f"--allow-host is {name!r}", expected="a name, or NAME:PORT, such as lab.example.org")
    return name


def _split(host: str) -> tuple[str, int | None]:
    """Name and port of `name`, `name:port`, `[::1]` or `[::1]:port`; an IPv6 address of its own has no port."""
    if host.startswith("["):
        name, _, rest = host.partition("]")
        port = rest.removeprefix(":")
    elif host.count(":") == 1:
        name, _, port = host.partition(":")
    else:
        name, port = host, ""
    return _bare(name), int(port) if port.isascii() and port.isdigit() else None


def _bare(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
