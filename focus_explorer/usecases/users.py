"""Whom this code works for: the user and the request behind it, the log that names both, and a lab's file of users.

Nobody in particular on a private page and the command line. The log holds nothing that users wrote.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from focus_explorer.errors import InputError
from focus_explorer.settings import process_user
from focus_runtime.files import replacing

LOG = logging.getLogger("focus_explorer")
USER_SOURCES: list[Callable[[], str | None]] = []
"""Asked first, such as for the request of an event that a server took from its queue; None where there is none."""
REQUEST_ID_SOURCES: list[Callable[[], str]] = []
"""The same for its id; empty where there is none."""

VISITOR = "visitor:"  # begins the name of a public page's visitor; no name in a file of users has a colon

FORMAT = "focus-explorer users 1"
COST = {"n": 2**15, "r": 8, "p": 1}  # of scrypt (RFC 7914): 32 MiB and about a tenth of a second for each attempt
MOST_MEMORY = 64 * 2**20
LEAST_LENGTH = 8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
SALT, HASH = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{128}")

Users = dict[str, dict[str, Any]]


@dataclass(slots=True)
class _Request:
    identity: str
    ended: bool = False


_USER: ContextVar[str | None] = ContextVar("user", default=None)
_REQUEST: ContextVar[_Request | None] = ContextVar("request", default=None)


@contextmanager
def acting_as(user: str | None) -> Iterator[None]:
    """Within the block this code works for a user: a name, "" for one not logged in, None for the machine's owner."""
    token = _USER.set(user)
    try:
        yield
    finally:
        _USER.reset(token)


def acting_user() -> str | None:
    """The user that this code works for: a name, empty for an unknown one, None where there are no users."""
    user = next((user for source in USER_SOURCES if (user := source()) is not None), _USER.get())
    return process_user() if user is None else user


def visitor_of(user: str | None) -> str | None:
    """The visitor of a public page that a user is; None for any other user and for nobody."""
    return user.removeprefix(VISITOR) if user is not None and user.startswith(VISITOR) else None


def new_owner() -> str | None:
    """The owner of what is made now; None where a database has one user, as a visitor's own has."""
    user = acting_user()
    return None if visitor_of(user) is not None else user or None


def check_owner(what: str, owner: str | None) -> None:
    """Refuse a lab's user who wants to change what is not theirs, such as `what` "the run 20261124-…"."""
    user = acting_user()
    if user is None or visitor_of(user) is not None or (user and user == owner):
        return
    whose = f"belongs to {owner}" if owner else "was made without a login"
    raise InputError(
        f"{what} {whose}",
        expected="something of your own",
        fix=f"ask {owner}" if owner else "ask who hosts the page: the command line may change it",
    )


@contextmanager
def working_for(identity: str) -> Iterator[None]:
    """Within the block this code works for the request of that id; what it started and goes on does not."""
    request = _Request(identity)
    token = _REQUEST.set(request)
    try:
        yield
    finally:
        request.ended = True
        _REQUEST.reset(token)


def request_id() -> str:
    """Id of the request that this code works for; empty where there is none."""
    found = next(filter(None, (source() for source in REQUEST_ID_SOURCES)), "")
    request = _REQUEST.get()
    return found or ("" if request is None or request.ended else request.identity)


def log_change(what: str, **names: str) -> None:
    """Log who has changed what for good, such as "run deleted", for a host's audit trail; never a word of a user's."""
    LOG.info(what, extra={"fields": dict(names)})


def read_users(path: str) -> Users:
    """Users of a lab's page by name, each with salt, hash and the cost of it."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as stream:
            content = json.load(stream)
    except OSError as error:
        raise InputError(
            f"the users in {path} cannot be read: {error.strerror}",
            fix=f"`focus-explorer users add NAME --file {path}` makes the file",
        ) from error
    except (ValueError, RecursionError):
        content = None
    users = content.get("users") if isinstance(content, dict) and content.get("format") == FORMAT else None
    if not isinstance(users, dict) or not all(NAME.fullmatch(n) and _is_entry(u) for n, u in users.items()):
        raise InputError(f"{path} is no file of users", expected="one that `focus-explorer users add` wrote")
    return users


def add_user(path: str, name: str, password: str) -> None:
    """Add a user, or give one another password; the file is made where it is missing, readable for its owner alone."""
    if not NAME.fullmatch(name):
        raise InputError(f"the name is {name!r}", expected="letters, digits and . _ @ -, at most 64")
    if len(password) < LEAST_LENGTH:
        raise InputError(f"the password has {len(password)} characters", expected=f"at least {LEAST_LENGTH}")
    users = read_users(path) if os.path.exists(os.path.expanduser(path)) else {}
    salt = secrets.token_bytes(16)
    users[name] = {"salt": salt.hex(), "hash": _hash(password, salt, COST).hex(), **COST}
    with replacing(os.path.expanduser(path), mode=0o600, sync=True) as part:
        part.write_text(json.dumps({"format": FORMAT, "users": users}, indent=2) + "\n", encoding="utf-8")


def is_password(users: Users, name: str, password: str) -> bool:
    """Whether a user has this password; an unknown name takes as long."""
    user = users.get(name)
    known = user or {"salt": "00" * 16, "hash": "00" * 64, **COST}
    made = _hash(password, bytes.fromhex(known["salt"]), known)
    return hmac.compare_digest(made, bytes.fromhex(known["hash"])) and user is not None


def _hash(password: str, salt: bytes, cost: dict[str, Any]) -> bytes:
    words = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(words, salt=salt, n=cost["n"], r=cost["r"], p=cost["p"], maxmem=MOST_MEMORY, dklen=64)


def _is_entry(user: Any) -> bool:
    if not isinstance(user, dict) or any(user.get(name) != value for name, value in COST.items()):
        return False
    salt, made = user.get("salt"), user.get("hash")
    return isinstance(salt, str) and isinstance(made, str) and bool(SALT.fullmatch(salt) and HASH.fullmatch(made))
