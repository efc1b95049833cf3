"""Private, lab or public: how a page is hosted, the names it answers to, and its process from start to SIGTERM."""

from __future__ import annotations

import atexit
import ipaddress
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS, process_runs, set_upload_folder
from focus_explorer.usecases.jobs import JobLimits, stop_all_jobs, usual_memory_limit
from focus_explorer.usecases.names import allowed_folders
from focus_explorer.usecases.users import LOG, read_users
from focus_explorer.usecases.visitors import Options, VisitorLimits, matching

WILDCARDS = ("0.0.0.0", "::")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*)(:[0-9]{1,5})?")
Mode = Literal["private", "lab", "public"]
JOB_MINUTES: dict[Mode, float] = {"private": 720.0, "lab": 60.0, "public": 2.0}

HeaderName = Annotated[str, matching(r"[A-Za-z0-9-]+", "a header such as X-Remote-User")]
Site = Annotated[str, matching(rf"https?://{NAME.pattern}", "a site such as https://example.org")]
PathBelow = Annotated[str, matching(r"((/[\w.~-]+)+)?", "a path such as /focus")]
Positive = Annotated[float, Field(gt=0)]


class Hosting(Options):
    """How a page is hosted.

    Raises:
        InputError: options contradict each other, a file cannot be used, or everyone would be let in.
    """

    OPTIONS: ClassVar[dict[str, str]] = {
        "allow_frames": "--allow-frame",
        "allow_hosts": "--allow-host",
        "allow_paths": "--allow-path",
        "models": "--allow-model",
        "users": "--auth",
    }

    host: str = SETTINGS["host"].default
    allow_hosts: tuple[str, ...] = ()
    allow_frames: tuple[Site, ...] = ()  # sites that may show it in a frame, as origins
    users: str | None = None  # file of users and hashed passwords; makes the page a lab's
    trusted_header: HeaderName | None = None  # request header in which a proxy names the user; makes the page a lab's
    insecure: bool = False
    root_path: PathBelow = ""  # path below which a proxy shows the page
    allow_paths: tuple[str, ...] = ()  # folders whose models and centroid files its fields may name by path
    mcp: bool = False
    metrics_port: int | None = None  # of 127.0.0.1, where metrics are served
    log_json: bool = False  # log requests, jobs and errors as JSON lines
    public: bool = False
    visitors: VisitorLimits = VisitorLimits()
    models: tuple[str, ...] = ()  # models that they may choose besides the page's own
    address_header: HeaderName | None = None  # request header in which a proxy gives a visitor's network address
    job_minutes: Positive | None = None  # that one job may work; the mode's own when None
    job_memory: Positive | None = None  # GiB that the page may take while one works; None: nine tenths of the machine's

    @property
    def mode(self) -> Mode:
        """Which of the modes it is."""
        if self.public:
            return "public"
        return "private" if self.users is self.trusted_header is None else "lab"

    @property
    def limits(self) -> JobLimits:
        """What one job may take."""
        minutes = JOB_MINUTES[self.mode] if self.job_minutes is None else self.job_minutes
        memory = usual_memory_limit() if self.job_memory is None else int(self.job_memory * 2**30)
        return JobLimits(seconds=60 * minutes, memory_bytes=memory)

    @property
    def addresses(self) -> Addresses:
        """Names and origins the page answers to."""
        return Addresses(self.host, self.allow_hosts)

    @model_validator(mode="after")
    def _check(self) -> Hosting:
        if self.users is not None and self.trusted_header is not None:
            raise InputError("--auth and --trusted-header together", expected="one of them", fix="see docs/hosting.md")
        if self.mcp and self.mode == "lab":
            raise InputError("--mcp on a lab's page: its clients cannot log in", fix="leave it out")
        if self.public:
            self._refuse(
                ("users", "trusted_header", "insecure", "allow_paths", "mcp"), "--public and {} together", "one of them"
            )
        else:
            self._refuse(("models", "allow_frames", "address_header"), "{} without --public")
            self._check_reach()
        _ = self.addresses
        allowed_folders(self.allow_paths)
        if self.users is not None and not read_users(self.users):
            raise InputError(
                f"{self.users} names no user", fix=f"add one with `focus-explorer users add NAME --file {self.users}`"
            )
        return self

    def _refuse(self, names: Iterable[str], problem: str, expected: str = "") -> None:
        for name in names:
            if getattr(self, name):
                raise InputError(problem.format(self.option(name)), expected=expected, fix="see docs/hosting.md")

    def _check_reach(self) -> None:
        if is_loopback(self.host) or self.insecure or self.users is not None:
            return
        if self.trusted_header is not None:
            raise InputError(
                f"whoever reaches {self.host} could send the header {self.trusted_header} and be anyone",
                fix="serve on 127.0.0.1 behind the proxy, or add --insecure where only the proxy reaches the port",
            )
        raise InputError(
            f"serving on {self.host} would let everyone who reaches it delete runs, start trainings and read files",
            fix="use --auth FILE for known users, --public for strangers, or --insecure if the network is trusted",
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address: localhost, 127.0.0.0/8 or ::1."""
    name = _bare(host)
    return name == "localhost" or (_is_ip(name) and ipaddress.ip_address(name).is_loopback)


class Addresses:
    """The names under which the page answers, and the origins whose requests it takes.

    A browser sends the page's own address as `Host`. After DNS rebinding it sends the attacker's name there, and a
    request of another site names that site as `Origin`; the page takes neither.

    Args:
        host: address it is served on. On all addresses of the machine (0.0.0.0) it answers to every IP address too:
            a rebound name is never one.
        allowed: further names, such as the one of a proxy; `NAME:PORT` where requests come from a port of their own.

    Raises:
        InputError: an allowed name is not a name.
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


_NAME = re.compile(r"focus-explorer-uploads-(\d+)-\w+")
LEAVING_SECONDS = 10.0  # for jobs to reach their next step
LAST_SECONDS = 5.0  # after that, for the server and all that is left
LOOK_SECONDS = 1.0  # between looks at signals that came to another thread


def private_uploads(parent: str | Path | None = None) -> Path:
    """Make the folder of uploads, for this user alone and gone with the server, before Gradio is imported.

    What servers that were killed left behind is removed.
    """
    parent = Path(parent or tempfile.gettempdir())
    sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"focus-explorer-uploads-{os.getpid()}-", dir=parent))  # mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    set_upload_folder(folder)
    return folder


def sweep(parent: Path) -> None:
    """Remove this user's folders of servers that no longer run."""
    for folder in parent.glob("focus-explorer-uploads-*"):
        named = _NAME.fullmatch(folder.name)
        if named and not folder.is_symlink() and _is_ours(folder) and not process_runs(int(named[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except (OSError, AttributeError):  # gone meanwhile, or a system without users
        return False


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT set the event; a second one ends the program at once.

    Where SIGINT was ignored at the start, as in a shell script's background job, it stays without effect here. But it
    gets a handler, since processes started from here inherit only what is ignored: trainings are stopped by SIGINT.
    """
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return

    def stop(number: int, frame: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    def nothing(number: int, frame: Any) -> None:
        pass

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    handlers = {signal.SIGTERM: stop, signal.SIGINT: nothing if ignored else stop}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(stopping: threading.Event) -> None:
    """Wait until the event of `stop_signals` is set."""
    while not stopping.wait(LOOK_SECONDS):  # lets the main thread handle a signal that reached another thread
        pass


def end_jobs() -> None:
    """Request that all background work stops, and wait for it; what it has not stored by then is dropped."""
    left = stop_all_jobs(LEAVING_SECONDS)
    if left:
        LOG.warning(f"ended during {', '.join(sorted(job.kind for job in left))}; no partial results are stored")


def exit_at_last(seconds: float = LEAVING_SECONDS + LAST_SECONDS) -> None:
    """End this process after so many seconds even where a thread is stuck; what is stored is whole at any moment."""

    def end() -> None:
        LOG.warning("ended with work that did not stop")
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
