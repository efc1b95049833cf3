"""A visitor's own database: the shown one until something is written, a copy of it from then on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from focus_explorer.errors import StoreError
from focus_runtime.files import replacing
from focus_runtime.store.connections import copy_database
from focus_runtime.store.database import Database


class ShownDatabase(Database):
    """The database whose runs every visitor sees. Who works for no visitor in particular may not write to it."""

    @contextmanager
    def write(self) -> Iterator[Any]:
        """Refuse to write.

        Raises:
            StoreError: always.
        """
        raise StoreError(
            "the runs that this page shows to everyone cannot be changed", fix="explore a text of your own"
        )
        yield  # a generator, as its base class has one


class VisitorDatabase(Database):
    """What one visitor sees and changes.

    Args:
        own: file of the visitor, made when something is first written.
        shown: database that it begins as a copy of.
        admit: called before the copy is made; may raise.
    """

    def __init__(self, own: Path, shown: Database, admit: Callable[[], None] = lambda: None) -> None:
        self._shown, self._admit = shown, admit
        self._copying = threading.Lock()
        super().__init__(own, wait=shown.wait)

    @property
    def path(self) -> Path:
        """The file that is read now."""
        return self._own if self.is_begun() else self._shown.path

    @path.setter
    def path(self, value: Path) -> None:
        self._own = value

    def is_begun(self) -> bool:
        """Whether the visitor has a file."""
        return os.path.exists(self._own)

    @contextmanager
    def read(self) -> Iterator[Any]:
        """A read-only connection to the visitor's file, or to the shown one."""
        with super().read() if self.is_begun() else self._shown.read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Any]:
        """A connection inside one transaction to the visitor's file, which is made where there is none."""
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
