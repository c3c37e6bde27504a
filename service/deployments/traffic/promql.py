"""What a Prometheus server has gathered from engines: the queries, and their answers as counters.

https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError

from sutler.service.deployments.traffic.counters import Counters
from sutler.service.deployments.traffic.exposition import VLLM, MetricsError
from sutler.service.deployments.traffic.histograms import (
    MOST_COUNTED,
    Histogram,
    NotAHistogramError,
    first,
    histogram_of,
)

PATH: Final = "/api/v1/query"
EXTRAPOLATED: Final = 0.02  # of all: by that much may a bucket count less than a smaller one
MOST_SERIES: Final = 1_000  # chosen: above the buckets of any histogram; a hostile answer must not take long to check

Ask = Callable[[str], bytes]
"""Answers a query with the body of Prometheus' answer. Raises ScrapeError."""


class _Sample(BaseModel):
    metric: dict[str, str]
    value: tuple[float, Annotated[str, Field(max_length=40)]]


class _Data(BaseModel):
    result: Annotated[list[_Sample], Field(max_length=MOST_SERIES)]


class _Answer(BaseModel):
    data: _Data


def url_of(base_url: str, query: str) -> str:
    """The URL of an instant query."""
    return f"{base_url.rstrip('/')}{PATH}?{urlencode({'query': query})}"


def counters_within(ask: Ask, selector: Mapping[str, str], *, range_s: float) -> Counters:
    """What came in the last `range_s` seconds, by all engines that the labels select.

    Raises MetricsError, and what `ask` raises.
    """
    read = _Reader(ask, selector, range_s)
    prompt, generation = (read.histogram(name) for name in (VLLM.prompt, VLLM.generation))
    if prompt is None or generation is None:
        missing = VLLM.prompt if prompt is None else VLLM.generation
        remedy = "correct the selector, or raise every_s to at least half of Prometheus' scrape interval"
        raise MetricsError(f"there are no two samples of {missing} in {range_s:g} s: {remedy}")
    finished = read.total(VLLM.finished)
    ttft = read.histogram(VLLM.ttft)
    return Counters(prompt, generation, finished, ttft, first(read.histogram(name) for name in VLLM.tpot))


class _Reader:
    """Asks for increases."""

    def __init__(self, ask: Ask, selector: Mapping[str, str], range_s: float) -> None:
        self._ask, self._range = ask, f"[{round(range_s * 1000)}ms]"
        self._labels = "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(selector.items())) + "}"

    def histogram(self, name: str) -> Histogram | None:
        cumulative = {}
        for sample in self._result(f"sum by (le) ({self._increase(f'{name}_bucket')})"):
            cumulative[_number(sample.metric.get("le", ""))] = _count(sample)
        if not cumulative:
            return None
        try:
            return histogram_of(cumulative, self.total(f"{name}_sum") or 0.0, tolerance_fraction=EXTRAPOLATED)
        except NotAHistogramError as error:
            raise MetricsError(f"a histogram {error}") from None

    def total(self, name: str) -> float | None:
        samples = self._result(f"sum ({self._increase(name)})")
        return _count(samples[0]) if samples else None

    def _increase(self, name: str) -> str:
        return f"increase({name}{self._labels}{self._range})"

    def _result(self, query: str) -> list[_Sample]:
        try:
            found: Any = json.loads(self._ask(query))
            return _Answer.model_validate(found).data.result
        except (ValidationError, ValueError, RecursionError):
            raise MetricsError("this is no answer of Prometheus' API: give the URL of its root") from None


def _count(sample: _Sample) -> float:
    value = _number(sample.value[1])
    if not 0 <= value <= MOST_COUNTED:
        raise MetricsError("Prometheus counts what cannot be")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MetricsError("Prometheus answers with what is no number") from None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
