"""The service of a public page: for each visitor another one, found by whom the code works for."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_explorer.data.queries import fetch
from focus_explorer.errors import ConfigError, InputError, StoreError, TextError
from focus_explorer.usecases.acting_user import VISITOR, acting_user, visitor_of
from focus_explorer.usecases.jobs import live_jobs
from focus_explorer.usecases.models import ModelStore
from focus_explorer.usecases.names import KnownNames
from focus_explorer.usecases.service import Part, Service
from focus_explorer.usecases.visitors.database import ShownDatabase, VisitorDatabase
from focus_explorer.usecases.visitors.limits import CHARACTERS_OF_TOKEN, MOST_REMEMBERED, Shares, VisitorLimits
from focus_explorer.words import counted
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_explorer.usecases.analyze import AnalyzeRequest

IDLE_SECONDS = 1800.0  # after which what is kept in memory for a visitor goes
SWEEP_SECONDS = 300.0
MOST_LARGE = 6  # of each class; a hundred megabytes each
MOST_SERVICES = 2000  # visitors for whom something is kept in memory
MOST_BYTES = 8 * 2**30  # of all visitors' databases together
_FOLDER = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicNames(KnownNames):
    """What a public page's fields may name: models and files that its host has chosen, at the page's own precision.

    Attributes:
        limits: of one visitor.
    """

    limits: VisitorLimits

    def model(self, name: str) -> str:
        """The name, where the host has chosen it or a shown run was made with it.

        Raises:
            InputError: it is another one.
        """
        name = name.strip()
        if name in self.models or name in fetch(self.database, "model_ids")["model_id"].to_pylist():
            return name
        raise InputError(
            f"{name[:200]!r} is no model of this page",
            expected=", ".join(sorted(self.models)),
            fix="install Focus Explorer on your own machine for other models",
        )

    def request(self, request: AnalyzeRequest) -> AnalyzeRequest:
        """A request of a visitor: names as ever, texts no longer than they may be, where and how the page computes.

        Raises:
            InputError: it asks for more.
        """
        known = super(PublicNames, self).request(request)
        most = self.limits.tokens
        if request.max_tokens is not None and request.max_tokens > most:
            raise ConfigError(f"the longest text is {request.max_tokens:,} tokens", expected=f"at most {most:,} here")
        for name, value in (("device", request.device), ("number format", request.dtype)):
            if value not in (None, "auto"):
                raise ConfigError(f"the {name} is {value!r}", expected="auto: this page chooses it")
        return replace(known, max_tokens=request.max_tokens or most, device=None, dtype=None)

    def text(self, text: str) -> None:
        """Refuse a text that would take long even to be cut.

        Raises:
            TextError: it has too many characters.
        """
        most = CHARACTERS_OF_TOKEN * self.limits.tokens
        if len(text) > most:
            raise TextError(f"the text has {len(text):,} characters", expected=f"at most {most:,} on this page")


class OwnService(Service):
    """What one visitor works on.

    Args:
        visitor: their name.
        page: of all visitors.
        folder: for the visitor's database.
    """

    def __init__(self, visitor: str, page: VisitorService, folder: Path) -> None:
        database = VisitorDatabase(folder / page.shown.path.name, page.shown, page.check_space)
        super().__init__(models=page.models, opened=database)
        self.names, self.drawing, self._map_lock = page.names, page.drawing, page.map_lock  # one at a time for all
        self.visitor, self.folder, self._page = visitor, folder, page
        self.used = 0.0  # when it was last asked for

    def drop(self, kind: type[Any]) -> None:
        """Forget the object of a class; who works with it keeps it until then."""
        with self._lock:
            self._parts.pop(kind, None)

    def admit_run(self) -> None:
        """Count a run that is to be stored.

        Raises:
            InputError: the visitor has stored as many as they may.
        """
        self._page.admit_run(self)


class VisitorService(Service):
    """The service of a public page. Whoever works for no visitor reads the shown runs and writes nothing.

    Args:
        database: file with the shown runs.
        models: where models are leased from.
        limits: of one visitor.
    """

    def __init__(self, database: str | Path, models: ModelStore, limits: VisitorLimits) -> None:
        if not Database(database).path.exists():
            with Database(database).write():  # by the host, for whom this is made
                pass
        self.shown = ShownDatabase(database)
        super().__init__(models=models, opened=self.shown)
        self.limits, self.shares = limits, Shares(limits)
        self.folder = self.shown.path.with_name(f"{self.shown.path.name}.visitors")
        self.addresses: OrderedDict[str, str] = OrderedDict()  # by visitor, where they were last seen
        self._services: OrderedDict[str, OwnService] = OrderedDict()
        self._large: dict[type[Any], OrderedDict[str, OwnService]] = {}
        self._own_lock = threading.Lock()
        models.meter = self

    @property
    def database(self) -> Database:
        """That of the visitor this code works for."""
        own = self._own()
        return self.shown if own is None else own.database

    def part(self, kind: type[Part]) -> Part:
        """The one object of a class that belongs to the visitor this code works for.

        Of a class that says it is `LARGE`, as it keeps passes of the model, only the latest few visitors have one.
        """
        own = self._own()
        if own is None:
            return super().part(kind)
        if getattr(kind, "LARGE", False):
            with self._own_lock:
                latest = self._large.setdefault(kind, OrderedDict())
                latest[own.visitor] = own
                latest.move_to_end(own.visitor)
                while len(latest) > MOST_LARGE:
                    latest.popitem(last=False)[1].drop(kind)
        return own.part(kind)

    def admit_run(self, own: OwnService | None = None) -> None:
        """Count a run that is to be stored.

        Args:
            own: of the visitor; whom this code works for when None.

        Raises:
            InputError: the visitor has stored as many as they may, or there is none.
        """
        own = own or self._own()
        if own is None:
            raise StoreError("there is no visitor to store a run for", fix="reload the page")
        kept = len(fetch(own.database, "all_run_ids")) - len(fetch(self.shown, "all_run_ids"))
        if kept >= self.limits.kept_runs:
            raise InputError(
                f"you have {counted(kept, 'run')} on this page",
                expected=f"at most {self.limits.kept_runs}, deleted ones included",
                fix=f"they are removed {self.limits.hours:g} hours after your last visit",
            )
        address = self._address(own.visitor)
        self.shares.admit(self.shares.runs, own.visitor, address)
        self.shares.spend(self.shares.runs, own.visitor, address, 1)

    def admit(self) -> None:
        """Let the visitor this code works for use the model; see `Meter`.

        Raises:
            InputError: they have used it as long as they may.
        """
        visitor = visitor_of(acting_user())
        if visitor is not None:
            self.shares.admit(self.shares.seconds, visitor, self._address(visitor))

    def spend(self, seconds: float) -> None:
        """Count seconds for which they used it."""
        visitor = visitor_of(acting_user())
        if visitor is not None:
            self.shares.spend(self.shares.seconds, visitor, self._address(visitor), seconds)

    def seen(self, visitor: str, address: str) -> None:
        """A request of a visitor has come from a network address."""
        with self._own_lock:
            self.addresses[visitor] = address
            self.addresses.move_to_end(visitor)
            while len(self.addresses) > MOST_REMEMBERED:
                self.addresses.popitem(last=False)

    def check_space(self) -> None:
        """Refuse another visitor's copy where all copies take too much space, after a sweep.

        Raises:
            StoreError: there is no room.
        """
        if self._bytes() + self.shown.path.stat().st_size > MOST_BYTES:
            self.sweep()
            if self._bytes() + self.shown.path.stat().st_size > MOST_BYTES:
                raise StoreError("this page keeps as many visitors' runs as it can", fix="try again tomorrow")

    def sweep(self) -> None:
        """Remove what belongs to visitors who have not been here for long."""
        now = time.time()
        busy = {job.user for job in live_jobs()}
        with self._own_lock:
            for visitor, own in list(self._services.items()):
                if own.used < time.monotonic() - IDLE_SECONDS and VISITOR + visitor not in busy:
                    self._forget(visitor)
            for folder in self.folder.glob("*"):
                old = _FOLDER.fullmatch(folder.name) and folder.name not in self._services
                with suppress(OSError):
                    if old and folder.stat().st_mtime < now - 3600 * self.limits.hours:
                        shutil.rmtree(folder)

    def sweep_for_ever(self, stopping: threading.Event) -> None:
        """Sweep now and then, until the event is set."""
        while True:
            self.sweep()
            if stopping.wait(SWEEP_SECONDS):
                return

    def _own(self) -> OwnService | None:
        visitor = visitor_of(acting_user())
        if visitor is None:
            return None
        with self._own_lock:
            own = self._services.get(visitor)
            if own is None:
                own = self._services[visitor] = OwnService(visitor, self, self.folder / visitor)
                while len(self._services) > MOST_SERVICES:  # who asks without a cookie is another one each time
                    self._forget(next(iter(self._services)))
            self._services.move_to_end(visitor)
            now = time.monotonic()
            if now - own.used > 60:  # the folder's time is that of the last visit
                own.used = now
                if own.folder.exists():
                    own.folder.touch()
            return own

    def _forget(self, visitor: str) -> None:
        """Keep nothing in memory for a visitor; work under way goes on, and what is stored stays."""
        del self._services[visitor]
        for latest in self._large.values():
            latest.pop(visitor, None)

    def _address(self, visitor: str) -> str:
        return self.addresses.get(visitor, visitor)

    def _bytes(self) -> int:
        total = 0
        for file in self.folder.rglob("*"):
            with suppress(OSError):
                total += file.stat().st_size
        return total


def visitor_limits(service: Service) -> VisitorLimits | None:
    """What one visitor of a page may use; None where it has known users."""
    return service.limits if isinstance(service, VisitorService) else None
