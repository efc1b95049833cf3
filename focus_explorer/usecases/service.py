"""What every use case works on: one database, and the model loaded for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from focus_explorer import settings
from focus_explorer.usecases.models import FairLock, ModelStore
from focus_runtime.store.database import Database

Part = TypeVar("Part")
Key = TypeVar("Key")
Kept = TypeVar("Kept")


class Latest(Generic[Key, Kept]):
    """What was used last of results that never change, at most so many; safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Kept | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: Key, value: Kept) -> Kept:
        """Keep a value, and return it."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value


class FieldNames(Protocol):
    """What a page's fields may name and ask for: `KnownNames` of names.py, which works on a service."""

    def model(self, name: str) -> str: ...

    def centroid_file(self, name: str) -> str: ...

    def request(self, request: Any) -> Any: ...

    def text(self, text: str) -> None: ...


class Service:
    """One database (the user's own when None) and at most one loaded model at a time; safe to use from several threads.

    Attributes:
        names: models and centroid files that a page's fields may name. None: a command line names them.
        models: leases the model (`service.models.lease(name)`).
        drawing: held while a file is drawn or written for a download, one at a time for all users in turn.
    """

    def __init__(
        self, database: str | Path | None = None, *, models: ModelStore | None = None, opened: Database | None = None
    ) -> None:
        self._database = opened or Database(database or settings.default_database())
        self.models = models or ModelStore()
        self.names: FieldNames | None = None
        self.drawing = FairLock()
        self.map_lock = threading.Lock()  # held while a map is computed and stored, so that none is made twice
        self._parts: dict[type[Any], Any] = {}
        self._lock = threading.RLock()

    @property
    def database(self) -> Database:
        return self._database

    def admit_run(self) -> None:
        """Count a run that is to be stored; a page for strangers refuses too many."""

    def part(self, kind: type[Part]) -> Part:
        """The one object of a class that belongs to this service, such as its jobs; `kind(service)` at first use."""
        with self._lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self)  # type: ignore[call-arg]
            part: Part = self._parts[kind]
            return part
