"""What a host sees of a page: an id and a log line for every request, metrics for Prometheus, nothing users wrote."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
import traceback
import uuid
from collections import Counter as Tally
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from focus_explorer.errors import InputError
from focus_explorer.usecases.jobs import job_counts
from focus_explorer.usecases.users import LOG, REQUEST_ID_SOURCES, acting_user, request_id, working_for
from focus_explorer.web.gradio_internals import event_header
from focus_explorer.web.hosting.guard import USER_HEADER, on_answer, put_header

ADDRESS = "127.0.0.1"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # upper ends
HEADER = "x-request-id"
GIVEN = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLOSED = 499  # nginx's status of a request whose client left before it was answered
OTHER = "other"  # unknown routes and functions: their names are whatever a client chose

REQUEST_ID_SOURCES.append(lambda: event_header(HEADER) or "")


class Observed:
    """Middleware that takes or makes a request's id, answers with it, and records how the request ended.

    Args:
        functions: names of the page's functions, the only ones that are logged.
        routes: the application's own besides Gradio's; FastAPI does not tell which of them answered.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, functions: Collection[str], routes: Collection[Route]) -> None:
        self.app, self.metrics, self.functions = app, metrics, frozenset(functions)
        self.paths: dict[object, str] = {route.endpoint: route.path for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        identity = given if GIVEN.fullmatch(given) else uuid.uuid4().hex
        put_header(scope, HEADER, identity)
        status = CLOSED

        def answered(headers: MutableHeaders, with_status: int) -> None:
            nonlocal status
            status = with_status
            headers.append(HEADER, identity)

        started = time.monotonic()
        with working_for(identity):
            try:
                with self.metrics.in_progress.track_inprogress():
                    await self.app(scope, receive, on_answer(send, answered))
            except Exception:
                status = 500
                raise
            finally:
                self._record(scope, status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "") or self.paths.get(scope.get("endpoint", ""), OTHER)
        named = scope.get("path_params", {}).get("api_name", "")
        function = named if named in self.functions else OTHER if named else ""
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else OTHER
        self.metrics.requests.labels(method, route, function, str(status)).inc()
        self.metrics.seconds.labels(method, route, function).observe(seconds)
        fields = {"method": method, "route": route, "function": function, "status": status}
        if user := Headers(scope=scope).get(USER_HEADER):  # which the middleware inside has put there
            fields["user"] = user
        LOG.info("request", extra={"fields": fields | {"seconds": round(seconds, 4)}})


class Metrics:
    """Requests, jobs, the size of the database file and the process of one page, as Prometheus reads them."""

    def __init__(self, database: Path) -> None:
        self.registry = prometheus.CollectorRegistry()
        labels = ("method", "route", "function")
        self.requests = prometheus.Counter(
            "focus_requests", "Requests answered", (*labels, "status"), registry=self.registry
        )
        self.seconds = prometheus.Histogram(
            "focus_request_seconds", "Seconds until answered", labels, buckets=SECONDS, registry=self.registry
        )
        self.in_progress = prometheus.Gauge(
            "focus_requests_in_progress", "Requests being answered", registry=self.registry
        )
        size = prometheus.Gauge("focus_database_bytes", "Size of the database file", registry=self.registry)
        size.set_function(lambda: _size(database))
        self.registry.register(Jobs())
        for collector in (prometheus.ProcessCollector, prometheus.PlatformCollector, prometheus.GCCollector):
            collector(registry=self.registry)

    @contextmanager
    def serving(self, port: int | None) -> Iterator[None]:
        """Answer `/metrics` on a port of 127.0.0.1, which the page's visitors do not reach; None: on no port."""
        if port is None:
            yield
            return
        try:
            server, thread = prometheus.start_http_server(port, ADDRESS, self.registry)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"metrics cannot be served on port {port}: {error}", fix="choose another --metrics-port"
            ) from error
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Jobs(Collector):
    """Live and ended background jobs of this process, counted when Prometheus asks."""

    def collect(self) -> Iterator[Metric]:
        counts = job_counts()
        live = GaugeMetricFamily("focus_jobs_live", "Jobs that wait or run", labels=("kind", "state"))
        for (kind, state), number in Tally(counts.live).items():
            live.add_metric((kind, state), number)
        ended = CounterMetricFamily("focus_jobs_ended", "Jobs that ended", labels=("kind", "state"))
        for (kind, state), number in counts.ended.items():
            ended.add_metric((kind, state), number)
        seconds = CounterMetricFamily("focus_job_seconds", "Seconds that ended jobs ran", labels=("kind",))
        for kind, total in counts.seconds.items():
            seconds.add_metric((kind,), total)
        return iter((live, ended, seconds))


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


class JSONFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, event, request, user if any, and the `fields` it was logged with.

    Messages of other libraries and of exceptions may quote what a user wrote. So of the former only the place they
    come from is kept, of the latter their type and their frames.
    """

    def format(self, record: logging.LogRecord) -> str:
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
            frames = traceback.extract_tb(record.exc_info[2])
            entry["error"] = record.exc_info[0].__qualname__
            entry["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(entry, ensure_ascii=False, default=str)


class JSONLog:
    """Writes everything that is logged as JSON lines, also what other libraries log; usually to standard error."""

    def __init__(self, handler: logging.Handler | None = None) -> None:
        self.handler = handler or logging.StreamHandler()
        self.handler.setFormatter(JSONFormatter())

    def take_over(self) -> None:
        """Replace all other handlers; again after a library has set up its own."""
        for name in (None, *logging.Logger.manager.loggerDict):
            logger = logging.getLogger(name)
            logger.handlers[:] = []
            logger.propagate = True
        logging.getLogger().addHandler(self.handler)
        LOG.setLevel(logging.INFO)
        logging.captureWarnings(True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block nothing else reaches standard error."""
        self.take_over()
        with redirect_stderr(LoggedOutput()):
            yield


class LoggedOutput(io.TextIOBase):
    """Replaces standard error: logs that something was printed, but not what, which may quote a user's text.

    An exception whose traceback is printed is logged once, by type and frames.
    """

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def writable(self) -> bool:
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
