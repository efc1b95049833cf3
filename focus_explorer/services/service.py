"""What every use case works on: one database, and the model loaded for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Protocol, TypeVar

from focus_explorer import settings
from focus_explorer.services.models import ModelStore
from focus_runtime.store.database import Database

Part = TypeVar("Part")


class FieldNames(Protocol):
    """What a page's fields may name."""

    def model(self, name: str) -> str:
        """The name of a model that the page knows."""

    def centroid_file(self, name: str) -> str:
        """The name or hash of a centroid file that the page knows."""


class Service:
    """One database and at most one loaded model at a time; safe to use from several threads.

    Args:
        database: DuckDB file; the user's own when None.
        models: where models are leased from; a store of its own when None.

    Attributes:
        names: models and centroid files that a page's fields may name; None where a command line names them.
        database: the database.
        models: leases the model (`service.models.lease(name)`).
        map_lock: held while a map is computed and stored, so that no map is made twice.
    """

    def __init__(self, database: str | Path | None = None, *, models: ModelStore | None = None) -> None:
        self.database = Database(database or settings.default_database())
        self.models = models or ModelStore()
        self.names: FieldNames | None = None
        self.map_lock = threading.Lock()
        self._parts: dict[type[Any], Any] = {}
        self._lock = threading.RLock()

    def part(self, kind: type[Part]) -> Part:
        """The one object of a class that belongs to this service, such as its jobs; `kind(service)` at first use."""
        with self._lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self)  # type: ignore[call-arg]
            part: Part = self._parts[kind]
            return part
