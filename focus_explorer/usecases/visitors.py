"""A public page: what one visitor may use, a database for each of them, and the service that finds it."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from focus_explorer.data.queries import fetch
from focus_explorer.errors import ConfigError, InputError, StoreError, TextError
from focus_explorer.progress import about
from focus_explorer.usecases.jobs import live_jobs
from focus_explorer.usecases.models import ModelStore
from focus_explorer.usecases.names import KnownNames
from focus_explorer.usecases.service import Part, Service
from focus_explorer.usecases.users import VISITOR, acting_user, visitor_of
from focus_explorer.words import counted
from focus_runtime.files import replacing
from focus_runtime.store.connections import copy_database
from focus_runtime.store.database import Database

if TYPE_CHECKING:
    from focus_explorer.usecases.analyze import AnalyzeRequest

WINDOW_SECONDS = 3600.0
VISITORS_OF_ADDRESS = 4  # shares of a visitor that everyone of one network address has together
MOST_REMEMBERED = 20_000  # visitors and addresses; those seen longest ago are forgotten
CHARACTERS_OF_TOKEN = 16  # texts of more characters than that are not even cut into tokens
IDLE_SECONDS = 1800.0  # after which what is kept in memory for a visitor goes
SWEEP_SECONDS = 300.0
MOST_LARGE = 6  # of each class; a hundred megabytes each
MOST_SERVICES = 2000  # visitors for whom something is kept in memory
MOST_BYTES = 8 * 2**30  # of all visitors' databases together
_FOLDER = re.compile(r"[0-9a-f]{16,64}")


class Options(BaseModel):
    """Options of `focus-explorer serve`, checked when they are given."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    PREFIX: ClassVar[str] = "--"
    OPTIONS: ClassVar[dict[str, str]] = {}  # field -> its option, where that has another name

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            first = error.errors()[0]
            problem = first.get("ctx", {}).get("error")
            if not isinstance(problem, InputError):
                expected = re.sub("^(Input should be|Value error,) ", "", first["msg"])
                problem = InputError(f"{self.option(str(first['loc'][0]))} is {first['input']!r}", expected=expected)
            raise problem from error

    @classmethod
    def option(cls, field: str) -> str:
        return cls.OPTIONS.get(field, cls.PREFIX + field.replace("_", "-"))


def matching(pattern: str, expected: str) -> AfterValidator:
    """Accepts texts of a pattern; the message names what was expected."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(expected)
        return value

    return AfterValidator(check)


class VisitorLimits(Options):
    PREFIX = "--visitor-"

    tokens: int = Field(default=2000, ge=2, description="longest text")
    runs: int = Field(default=20, gt=0, description="texts explored in an hour")
    minutes: float = Field(default=5.0, gt=0, description="that the model works for a visitor in an hour")
    kept_runs: int = Field(default=60, gt=0, description="runs of a visitor at a time")  # deleted ones included
    hours: float = Field(default=24.0, gt=0, description="after the last visit, when a visitor's runs are removed")


class Share:
    """What visitors and their network addresses used of something within the last hour; safe for several threads."""

    def __init__(self, most: float, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.what, self._clock = most, what, clock
        self._used: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()  # when and how much, by either
        self._lock = threading.Lock()

    def admit(self, visitor: str, address: str) -> None:
        own, all_there = self.seconds_left(visitor), self.seconds_left(address, VISITORS_OF_ADDRESS)
        if not own and not all_there:
            return
        whose = "you have" if own else "your network address has"
        raise InputError(
            f"{whose} used what one visitor may use of this page within an hour ({self.what})",
            fix=f"try again in about {about(max(own, all_there))}, or install Focus Explorer on your own machine",
        )

    def spend(self, visitor: str, address: str, amount: float) -> None:
        with self._lock:
            for key in (visitor, address):
                self._recent(key).append((self._clock(), amount))
            while len(self._used) > MOST_REMEMBERED:
                self._used.popitem(last=False)

    def seconds_left(self, key: str, times: int = 1) -> float:
        """How long a visitor or address has to wait until it may use more; 0 where it may now."""
        with self._lock:
            recent = self._recent(key)
            over = sum(amount for _, amount in recent) - times * self.most
            if over < 0:
                return 0.0
            for since, amount in recent:
                over -= amount
                if over < 0:
                    return max(0.0, since + WINDOW_SECONDS - self._clock())
            return 0.0

    def _recent(self, key: str) -> deque[tuple[float, float]]:
        recent = self._used.setdefault(key, deque())
        self._used.move_to_end(key)
        while recent and recent[0][0] <= self._clock() - WINDOW_SECONDS:
            recent.popleft()
        return recent


class ShownDatabase(Database):
    """The database whose runs every visitor sees. Who works for no visitor in particular may not write to it."""

    @contextmanager
    def write(self) -> Iterator[Any]:
        raise StoreError(
            "the runs that this page shows to everyone cannot be changed", fix="explore a text of your own"
        )
        yield  # a generator, as its base class has one


class VisitorDatabase(Database):
    """What one visitor sees and changes: the shown database until something is written, then a copy of their own."""

    def __init__(self, own: Path, shown: Database, admit: Callable[[], None] = lambda: None) -> None:
        self._shown, self._admit = shown, admit
        self._copying = threading.Lock()
        super().__init__(own, wait=shown.wait)

    @property
    def path(self) -> Path:
        return self._own if self.is_begun() else self._shown.path

    @path.setter
    def path(self, value: Path) -> None:
        self._own = value

    def is_begun(self) -> bool:
        return os.path.exists(self._own)

    @contextmanager
    def read(self, *, migrates: bool = True) -> Iterator[Any]:
        read = super().read if self.is_begun() else self._shown.read
        with read(migrates=migrates) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Any]:
        self._begin()
        with super().write() as connection:
            yield connection

    def state(self) -> Hashable:
        """Tells what is read from every earlier state of it."""
        return super().state() if self.is_begun() else self._shown.state()

    def _begin(self) -> None:
        with self._copying:
            if self.is_begun():
                return
            self._admit()
            self._own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._shown.read() as connection, replacing(self._own, sync=True) as part:
                copy_database(connection, part)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicNames(KnownNames):
    """What a public page's fields may name: models and files that its host has chosen, at the page's own precision."""

    limits: VisitorLimits

    def model(self, name: str) -> str:
        """The name, where the host has chosen it or a shown run was made with it."""
        name = name.strip()
        if name in self.models or name in fetch(self.database, "model_ids")["model_id"].to_pylist():
            return name
        raise InputError(
            f"{name[:200]!r} is no model of this page",
            expected=", ".join(sorted(self.models)),
            fix="install Focus Explorer on your own machine for other models",
        )

    def request(self, request: AnalyzeRequest) -> AnalyzeRequest:
        """A request of a visitor: known names, texts no longer than they may be, where and how the page computes."""
        known = super(PublicNames, self).request(request)
        most = self.limits.tokens
        if request.max_tokens is not None and request.max_tokens > most:
            raise ConfigError(f"the longest text is {request.max_tokens:,} tokens", expected=f"at most {most:,} here")
        for name, value in (("device", request.device), ("number format", request.dtype)):
            if value not in (None, "auto"):
                raise ConfigError(f"the {name} is {value!r}", expected="auto: this page chooses it")
        return replace(known, max_tokens=request.max_tokens or most, device=None, dtype=None)

    def text(self, text: str) -> None:
        """Refuse a text that would take long even to be cut."""
        most = CHARACTERS_OF_TOKEN * self.limits.tokens
        if len(text) > most:
            raise TextError(f"the text has {len(text):,} characters", expected=f"at most {most:,} on this page")


class OwnService(Service):
    """What one visitor works on; their database lies in the folder."""

    def __init__(self, visitor: str, page: VisitorService, folder: Path) -> None:
        database = VisitorDatabase(folder / page.shown.path.name, page.shown, page.check_space)
        super().__init__(models=page.models, opened=database)
        self.names, self.drawing, self.map_lock = page.names, page.drawing, page.map_lock  # one at a time for all
        self.visitor, self.folder, self._page = visitor, folder, page
        self.used = 0.0  # when it was last asked for

    def drop(self, kind: type[Any]) -> None:
        """Forget the object of a class; who works with it keeps it until then."""
        with self._lock:
            self._parts.pop(kind, None)

    def admit_run(self) -> None:
        """Count a run that is to be stored, unless the visitor has stored as many as they may."""
        self._page.admit_run(self)


class VisitorService(Service):
    """The service of a public page. Whoever works for no visitor reads the shown runs and writes nothing."""

    def __init__(self, database: str | Path, models: ModelStore, limits: VisitorLimits) -> None:
        if not Database(database).path.exists():
            with Database(database).write():  # by the host, for whom this is made
                pass
        self.shown = ShownDatabase(database)
        super().__init__(models=models, opened=self.shown)
        self.limits = limits
        self.runs = Share(limits.runs, counted(limits.runs, "run"))
        self.seconds = Share(60 * limits.minutes, f"{limits.minutes:g} minutes of the model")
        self.folder = self.shown.path.with_name(f"{self.shown.path.name}.visitors")
        self.addresses: OrderedDict[str, str] = OrderedDict()  # by visitor, where they were last seen
        self._services: OrderedDict[str, OwnService] = OrderedDict()
        self._large: dict[type[Any], OrderedDict[str, OwnService]] = {}
        self._own_lock = threading.Lock()
        models.meter = self

    @property
    def database(self) -> Database:
        own = self._own()
        return self.shown if own is None else own.database

    def part(self, kind: type[Part]) -> Part:
        """The visitor's object of a class; of a `LARGE` one (passes of the model) only the latest few have one."""
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
        """Count a run that is to be stored, of a visitor or of the one this code works for."""
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
        self.runs.admit(own.visitor, address)
        self.runs.spend(own.visitor, address, 1)

    def admit(self) -> None:
        """Let the visitor this code works for use the model; see `Meter`."""
        visitor = visitor_of(acting_user())
        if visitor is not None:
            self.seconds.admit(visitor, self._address(visitor))

    def spend(self, seconds: float) -> None:
        visitor = visitor_of(acting_user())
        if visitor is not None:
            self.seconds.spend(visitor, self._address(visitor), seconds)

    def seen(self, visitor: str, address: str) -> None:
        with self._own_lock:
            self.addresses[visitor] = address
            self.addresses.move_to_end(visitor)
            while len(self.addresses) > MOST_REMEMBERED:
                self.addresses.popitem(last=False)

    def check_space(self) -> None:
        """Refuse another visitor's copy where all copies take too much space even after a sweep."""
        if self._is_full():
            self.sweep()
            if self._is_full():
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

    def _is_full(self) -> bool:
        total = self.shown.path.stat().st_size
        for file in self.folder.rglob("*"):
            with suppress(OSError):
                total += file.stat().st_size
        return total > MOST_BYTES


def visitor_limits(service: Service) -> VisitorLimits | None:
    """What one visitor of a page may use; None where it has known users."""
    return service.limits if isinstance(service, VisitorService) else None
