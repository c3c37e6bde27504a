"""One reading of one source: an engine's `/metrics`, or what a Prometheus has gathered. Blocks; knows no store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from sutler.service.deployments.traffic import exposition, promql
from sutler.service.deployments.traffic.counters import AnotherEngineError, Counters, Operating, Reading, increase
from sutler.service.deployments.traffic.exposition import MetricsError
from sutler.service.deployments.traffic.feed_repository import FeedSource
from sutler.service.deployments.traffic.fetching import USUAL_FETCHER, ScrapeError
from sutler.service.deployments.traffic.spreading import buckets_of
from sutler.service.deployments.traffic.window import Observation, WorkloadShape
from sutler.service.outgoing.addresses import Network

RANGES: Final = 4.0  # of `every_s`, that a Prometheus is asked for: two samples of each series have to be in it
LONGEST_GAP: Final = timedelta(minutes=10)  # after a longer one, counting begins anew
MOST_TOKENS: Final = 1e7  # of a request, as in observations that are sent
MOST_REQUESTS: Final = 1e9  # of a reading, as in observations that are sent
METRICS: Final = "text/plain;version=0.0.4"
JSON: Final = "application/json"


class Get(Protocol):
    """The body of a 200. Raises ScrapeError."""

    def __call__(self, url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Scraped:
    """What came since the last reading (None: the first one tells nothing yet); `reading` is to be continued."""

    reading: Reading | None
    observation: Observation | None
    latencies: dict[str, float]
    operating: Operating | None = None


@dataclass(frozen=True, slots=True)
class FailedScrape:
    """Why nothing could be read, without anything of the answer."""

    reading: Reading | None
    error: str


def read(
    source: FeedSource,
    shapes: Sequence[WorkloadShape],
    before: Reading | None,
    *,
    at: datetime,
    allowed: tuple[Network, ...],
    limits: Mapping[str, float] | None = None,
    get: Get = USUAL_FETCHER.get,
) -> Scraped | FailedScrape:
    """What the source says at that moment. Nothing is raised for what it answers.

    `limits`: of the model's latencies, in seconds, such as `ttft_p90_s`.
    """
    try:
        if source.kind == "prometheus":
            return _from_prometheus(source, shapes, at, limits, lambda url: get(url, accept=JSON, allowed=allowed))
        content = get(source.url, accept=METRICS, allowed=allowed)
        return _from_engine(
            source, shapes, before, at, limits, exposition.counters_of(content, exposition.ENGINES[source.kind])
        )
    except AnotherEngineError:
        return FailedScrape(None, "leads to one engine and then to another: give every engine's own address")
    except ArithmeticError:
        return FailedScrape(None, f"counts what cannot be: {_remedy(source)}")
    except (ScrapeError, MetricsError) as error:
        return FailedScrape(None if before is None else replace(before, failed_at=at), str(error))


def _from_engine(
    source: FeedSource,
    shapes: Sequence[WorkloadShape],
    before: Reading | None,
    at: datetime,
    limits: Mapping[str, float] | None,
    counters: Counters,
) -> Scraped:
    came = increase(before, at, counters, longest=LONGEST_GAP)
    reading = Reading(at, counters)
    if came is None:
        return Scraped(reading, None, {})
    observation = _observation(source, shapes, came.started_at, came.ended_at, came.counters)
    return Scraped(reading, observation, came.counters.latencies(limits), came.operating())


def _from_prometheus(
    source: FeedSource,
    shapes: Sequence[WorkloadShape],
    at: datetime,
    limits: Mapping[str, float] | None,
    ask: promql.Ask,
) -> Scraped:
    range_s = RANGES * source.every_s
    counters = promql.counters_within(
        lambda query: ask(promql.url_of(source.url, query)), source.selector, range_s=range_s
    )
    started_at = at - timedelta(seconds=range_s)
    return Scraped(None, _observation(source, shapes, started_at, at, counters), counters.latencies(limits))


def _observation(
    source: FeedSource, shapes: Sequence[WorkloadShape], started_at: datetime, ended_at: datetime, counters: Counters
) -> Observation:
    """Everything that was counted is in the buckets. Raises MetricsError for sizes that no request has."""
    buckets = buckets_of(counters, shapes)
    requests = sum(requests for _, _, requests in buckets)
    sizes = [size for bucket in buckets for size in bucket[:2]]
    if not (requests <= MOST_REQUESTS and all(0 <= size <= MOST_TOKENS for size in sizes)):
        raise MetricsError(f"counts what cannot be: {_remedy(source)}")
    return Observation(source.model, source.name, started_at, ended_at, requests, buckets)


def _remedy(source: FeedSource) -> str:
    return exposition.ENGINES.get(source.kind, exposition.VLLM).remedy
