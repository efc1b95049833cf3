"""What a Prometheus server reads of this one: requests, jobs, the database's size, the process."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from focus_explorer.errors import InputError
from focus_explorer.usecases.jobs import JobCounts, job_counts

ADDRESS = "127.0.0.1"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # upper ends


class Metrics:
    """Metrics of one page.

    Args:
        database: file whose size is one of them.
    """

    def __init__(self, database: Path) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "function")
        self.requests = Counter("focus_requests", "Requests answered", (*labels, "status"), registry=self.registry)
        self.seconds = Histogram(
            "focus_request_seconds", "Seconds until answered", labels, buckets=SECONDS, registry=self.registry
        )
        self.in_progress = Gauge("focus_requests_in_progress", "Requests being answered", registry=self.registry)
        size = Gauge("focus_database_bytes", "Size of the database file", registry=self.registry)
        size.set_function(lambda: _size(database))
        self.registry.register(Jobs())
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def count_request(self, method: str, route: str, function: str, status: int, seconds: float) -> None:
        """Record an answered request; `seconds` is the time until its last byte."""
        self.requests.labels(method, route, function, str(status)).inc()
        self.seconds.labels(method, route, function).observe(seconds)

    @contextmanager
    def serving(self, port: int | None) -> Iterator[None]:
        """Answer `/metrics` on a port of this machine's own, which the page's visitors do not reach.

        Args:
            port: of 127.0.0.1; nothing is served when None.

        Raises:
            InputError: the port cannot be had.
        """
        if port is None:
            yield
            return
        try:
            server, thread = start_http_server(port, ADDRESS, self.registry)
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
    """Live and ended background jobs of this process, counted when they are asked for."""

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        counts: JobCounts = job_counts()
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
