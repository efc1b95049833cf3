"""Private or lab: how a page is hosted, checked before anything is served."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from focus_explorer.errors import InputError
from focus_explorer.services.names import allowed_folders
from focus_explorer.services.users import read_users
from focus_explorer.settings import SETTINGS
from focus_explorer.ui.hosting.addresses import Addresses, is_loopback

Mode = Literal["private", "lab"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosting:
    """How a page is hosted.

    Attributes:
        host: address it is served on.
        allow_hosts: further names it answers to.
        users: file of users and hashed passwords; makes the page a lab's.
        trusted_header: request header in which a proxy names the user; makes the page a lab's.
        insecure: serve beyond this machine without login.
        root_path: path below which a proxy shows the page.
        allow_paths: folders whose models and centroid files its fields may name by path.
        metrics_port: port of 127.0.0.1 where metrics are served; none when None.
        log_json: log requests, jobs and errors as JSON lines.
    """

    host: str = SETTINGS["host"].default
    allow_hosts: tuple[str, ...] = ()
    users: str | None = None
    trusted_header: str | None = None
    insecure: bool = False
    root_path: str = ""
    allow_paths: tuple[str, ...] = ()
    metrics_port: int | None = None
    log_json: bool = False

    @property
    def mode(self) -> Mode:
        """Which of the modes it is."""
        return "private" if self.users is self.trusted_header is None else "lab"

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
        if self.trusted_header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", self.trusted_header):
            raise InputError(f"--trusted-header is {self.trusted_header!r}", expected="a header such as X-Remote-User")
        self._check_reach()
        _ = self.addresses
        allowed_folders(self.allow_paths)
        if self.users is not None and not read_users(self.users):
            raise InputError(
                f"{self.users} names no user", fix=f"add one with `focus-explorer users add NAME --file {self.users}`"
            )
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path):
            raise InputError(f"--root-path is {self.root_path!r}", expected="a path such as /focus")

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
            fix="use --auth FILE for known users, or --insecure if the network is trusted",
        )
