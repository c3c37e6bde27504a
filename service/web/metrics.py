"""What Prometheus scrapes of this process: its requests. operation/metrics_of_the_store.py has what all share.

Names follow https://prometheus.io/docs/practices/naming/.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from sutler.solver.version import VERSION

REQUEST_BUCKETS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD: Final = "OTHER"
OPENMETRICS: Final = "application/openmetrics-text"


class Families(Protocol):
    """More metrics than those of this process."""

    def families(self) -> Iterable[Metric]: ...


class Metrics:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # as many series again, for nothing
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        Info("sutler_build", "The sutler that answers.", registry=self._registry).info({"version": VERSION})
        self._requests = Counter(
            "sutler_http_requests",
            "HTTP requests answered, by route and status; 499: nobody was left to answer.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "sutler_http_request_seconds",
            "From a request's arrival to the end of its answer; long polls wait on purpose.",
            ("method", "route"),
            buckets=REQUEST_BUCKETS_S,
            registry=self._registry,
        )
        self._in_progress = self._gauge("sutler_http_requests_in_progress", "HTTP requests being answered now.")
        self._waiting = self._gauge("sutler_long_polls_in_progress", "Requests that wait for a change now.")

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, registry=self._registry)

    def request_began(self) -> None:
        """Counts a request that has come in; `request_ended` has to follow."""
        self._in_progress.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is a template, never a path. Callers may make up methods: those count as one."""
        self._in_progress.dec()
        known = method if method in METHODS else OTHER_METHOD
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    @contextmanager
    def long_poll(self, wait_s: float) -> Iterator[None]:
        """Counts a request while it waits for a change; one that waits for nothing does not count."""
        if wait_s <= 0:
            yield
            return
        with self._waiting.track_inprogress():
            yield

    def text(self, gathered: Families, *, accept: str | None = None) -> tuple[bytes, str]:
        """The exposition and its media type: OpenMetrics where `accept` asks for it, else Prometheus text."""
        joined = _Joined(self._registry, gathered)
        if OPENMETRICS in (accept or ""):  # the library's own choice fails on versions that are none
            content: bytes = openmetrics.generate_latest(joined, version="1.0.0")  # type: ignore[no-untyped-call]
            return content, openmetrics.CONTENT_TYPE_LATEST
        return generate_latest(joined), CONTENT_TYPE_PLAIN_0_0_4


class _Joined(Collector):
    """This process's metrics, then the store's."""

    def __init__(self, registry: CollectorRegistry, gathered: Families) -> None:
        self._registry, self._gathered = registry, gathered

    def collect(self) -> Iterable[Metric]:
        yield from self._registry.collect()
        yield from self._gathered.families()
