"""The program's log: one JSON object a line for whoever collects it, without anything that users wrote."""

from __future__ import annotations

import io
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from focus_explorer.usecases.acting_user import acting_user

LOG = logging.getLogger("focus_explorer")
REQUEST_ID_SOURCES: list[Callable[[], str]] = []
"""Asked first, such as for the request of an event that a server took from its queue."""


@dataclass(slots=True)
class _Request:
    identity: str
    ended: bool = False


_REQUEST: ContextVar[_Request | None] = ContextVar("request", default=None)


@contextmanager
def working_for(identity: str) -> Iterator[None]:
    """Meanwhile this code works for a request.

    What it started may go on afterwards with a copy of its context, such as a server's queue; that is then no longer
    this request's.

    Args:
        identity: of the request; empty for none.
    """
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
    """Log who has changed what for good, for a host's audit trail.

    Args:
        what: such as "run deleted"; no word of a user's.
        names: ids of what was changed.
    """
    LOG.info(what, extra={"fields": dict(names)})


class JSONFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, event, request, user if any, and the `fields` it was logged with.

    Messages of other libraries and of exceptions may quote what a user wrote. So of the former only the place they
    come from is kept, of the latter their type and their frames.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        own = record.name.split(".")[0] == LOG.name
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage() if own else f"message at {record.pathname}:{record.lineno}",
            "request": request_id(),
        }
        if user := acting_user():
            entry["user"] = user
        entry |= getattr(record, "fields", {}) if own else {}
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__qualname__
            entry["frames"] = _frames(record.exc_info[2])
        return json.dumps(entry, ensure_ascii=False, default=str)


class JSONLog:
    """Writes everything that is logged as JSON lines, also what other libraries log.

    Args:
        handler: that writes the lines; to standard error as it is now when None.
    """

    def __init__(self, handler: logging.Handler | None = None) -> None:
        self.handler = handler or logging.StreamHandler()
        self.handler.setFormatter(JSONFormatter())

    def take_over(self) -> None:
        """Take the place of all handlers there are; again after a library has set up its own."""
        for name in (None, *logging.Logger.manager.loggerDict):
            logger = logging.getLogger(name)
            logger.handlers[:] = []
            logger.propagate = True
        logging.getLogger().addHandler(self.handler)
        LOG.setLevel(logging.INFO)
        logging.captureWarnings(True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Meanwhile nothing else reaches standard error."""
        self.take_over()
        with redirect_stderr(LoggedOutput()):
            yield


class LoggedOutput(io.TextIOBase):
    """In the place of standard error: logs that something was printed, but not what, which may quote a user's text.

    An exception whose traceback is printed is logged once, by type and frames.
    """

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def writable(self) -> bool:
        """It takes text."""
        return True

    def write(self, text: str) -> int:
        """Log it; returns how many characters there were."""
        error = sys.exception()
        if error is not None and error is not self._last:
            self._last = error
            LOG.error("error printed", exc_info=error)
        elif error is None and text.strip():
            LOG.warning("output", extra={"fields": {"characters": len(text)}})
        return len(text)


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)]
