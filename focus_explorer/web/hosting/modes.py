"""Private, lab or public: how a page is hosted, checked before anything is served."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from focus_explorer.errors import InputError
from focus_explorer.settings import SETTINGS
from focus_explorer.usecases.job_limits import JobLimits, usual_memory_limit
from focus_explorer.usecases.names import allowed_folders
from focus_explorer.usecases.users import read_users
from focus_explorer.usecases.visitors.limits import VisitorLimits
from focus_explorer.web.hosting.addresses import NAME, Addresses, is_loopback

Mode = Literal["private", "lab", "public"]
JOB_MINUTES: dict[Mode, float] = {"private": 720.0, "lab": 60.0, "public": 2.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosting:
    """How a page is hosted.

    Attributes:
        host: address it is served on.
        allow_hosts: further names it answers to.
        allow_frames: sites that may show it in a frame, as origins.
        users: file of users and hashed passwords; makes the page a lab's.
        trusted_header: request header in which a proxy names the user; makes the page a lab's.
        insecure: serve beyond this machine without login.
        root_path: path below which a proxy shows the page.
        allow_paths: folders whose models and centroid files its fields may name by path.
        metrics_port: port of 127.0.0.1 where metrics are served; none when None.
        log_json: log requests, jobs and errors as JSON lines.
        public: serve visitors whom nobody knows.
        visitors: what one of them may use.
        models: models that they may choose besides the page's own.
        address_header: request header in which a proxy gives a visitor's network address.
        job_minutes: that one job may work; the mode's own when None.
        job_memory: GiB that the page may take while one works; nine tenths of the machine's when None.
    """

    host: str = SETTINGS["host"].default
    allow_hosts: tuple[str, ...] = ()
    allow_frames: tuple[str, ...] = ()
    users: str | None = None
    trusted_header: str | None = None
    insecure: bool = False
    root_path: str = ""
    allow_paths: tuple[str, ...] = ()
    metrics_port: int | None = None
    log_json: bool = False
    public: bool = False
    visitors: VisitorLimits = field(default_factory=VisitorLimits)
    models: tuple[str, ...] = ()
    address_header: str | None = None
    job_minutes: float | None = None
    job_memory: float | None = None

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

    def check(self, *, mcp: bool = False) -> None:
        """Refuse what would open the page to more people than was meant.

        Args:
            mcp: whether language models are offered the functions too.

        Raises:
            InputError: options contradict each other, a file cannot be used, or everyone would be let in.
        """
        if self.users is not None and self.trusted_header is not None:
            raise InputError("--auth and --trusted-header together", expected="one of them", fix="see docs/hosting.md")
        if mcp and self.mode == "lab":
            raise InputError("--mcp on a lab's page: its clients cannot log in", fix="leave it out")
        self._check_public(mcp=mcp)
        for option, header in (("--trusted-header", self.trusted_header), ("--address-header", self.address_header)):
            if header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", header):
                raise InputError(f"{option} is {header!r}", expected="a header such as X-Remote-User")
        for option, amount in (("--job-minutes", self.job_minutes), ("--job-memory", self.job_memory)):
            if amount is not None and not amount > 0:
                raise InputError(f"{option} is {amount:g}", expected="more than 0")
        self._check_reach()
        _ = self.addresses
        allowed_folders(self.allow_paths)
        if self.users is not None and not read_users(self.users):
            raise InputError(
                f"{self.users} names no user", fix=f"add one with `focus-explorer users add NAME --file {self.users}`"
            )
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path):
            raise InputError(f"--root-path is {self.root_path!r}", expected="a path such as /focus")

    def _check_public(self, *, mcp: bool) -> None:
        if not self.public:
            for_visitors: dict[str, object] = {
                "--allow-model": self.models,
                "--allow-frame": self.allow_frames,
                "--address-header": self.address_header,
            }
            for option, given in for_visitors.items():
                if given:
                    raise InputError(f"{option} without --public", fix="see docs/hosting.md")
            return
        self.visitors.check()
        for origin in self.allow_frames:
            if not re.fullmatch(rf"https?://{NAME.pattern}", origin):
                raise InputError(f"--allow-frame is {origin!r}", expected="a site such as https://example.org")
        others: dict[str, object] = {
            "--auth": self.users,
            "--trusted-header": self.trusted_header,
            "--insecure": self.insecure,
            "--allow-path": self.allow_paths,
            "--mcp": mcp,
        }
        for option, other in others.items():
            if other:
                raise InputError(f"--public and {option} together", expected="one of them", fix="see docs/hosting.md")

    def _check_reach(self) -> None:
        if self.public or is_loopback(self.host) or self.insecure or self.users is not None:
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
