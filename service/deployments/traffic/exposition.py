"""vLLM's metrics: which of them count, and how an engine's `/metrics` is read.

https://docs.vllm.ai/en/latest/design/metrics/
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

from sutler.service.deployments.traffic.counters import Counters
from sutler.service.deployments.traffic.histograms import (
    MOST_COUNTED,
    Histogram,
    NotAHistogramError,
    first,
    histogram_of,
    summed,
)

PROMPT: Final = "vllm:request_prompt_tokens"
GENERATION: Final = "vllm:request_generation_tokens"
FINISHED: Final = "vllm:request_success_total"
TTFT: Final = "vllm:time_to_first_token_seconds"
# A request's mean, as latency goals mean it; what older versions call so; the pause between two tokens.
TPOT: Final = (
    "vllm:request_time_per_output_token_seconds",
    "vllm:time_per_output_token_seconds",
    "vllm:inter_token_latency_seconds",
)
BEGAN: Final = "process_start_time_seconds"
HISTOGRAMS: Final = (PROMPT, GENERATION, TTFT, *TPOT)
WANTED: Final = {FINISHED, BEGAN, *(f"{name}{part}" for name in HISTOGRAMS for part in ("_bucket", "_sum"))}

_NAME_ENDS: Final = re.compile(r"[{\s]")

Labels = tuple[tuple[str, str], ...]


class MetricsError(Exception):
    """What was answered is not what an engine counts. The message holds nothing of the answer."""


def counters_of(content: bytes) -> Counters:
    """Reads the text of `/metrics`, summed over what one process serves. Raises MetricsError."""
    samples = _samples(content)
    try:
        prompt, generation = (_histogram(samples, name) for name in (PROMPT, GENERATION))
        ttft, *tpot = (_histogram(samples, name) for name in (TTFT, *TPOT))
    except NotAHistogramError as error:
        raise MetricsError(f"a histogram {error}") from None
    if prompt is None or generation is None:
        missing = PROMPT if prompt is None else GENERATION
        raise MetricsError(f"there is no {missing}: give the /metrics of a vLLM engine")
    began = [value for value in samples.get(BEGAN, {}).values() if isfinite(value)]
    return Counters(prompt, generation, _total(samples.get(FINISHED)), ttft, first(tpot), max(began, default=None))


def _samples(content: bytes) -> dict[str, dict[Labels, float]]:
    """The samples by name, then by labels; only what is wanted is parsed, since an engine tells much else."""
    from prometheus_client.parser import text_string_to_metric_families

    text = "\n".join(line for line in _lines(content) if _NAME_ENDS.split(line, 1)[0] in WANTED)
    found: dict[str, dict[Labels, float]] = defaultdict(dict)
    try:
        for family in text_string_to_metric_families(f"{text}\n"):
            for sample in family.samples:
                found[sample.name][tuple(sorted(sample.labels.items()))] = float(sample.value)
    except (ValueError, TypeError, IndexError, KeyError):
        raise MetricsError("this is not Prometheus' text format: give the /metrics of a vLLM engine") from None
    return found


def _lines(content: bytes) -> Iterable[str]:
    try:
        return content.decode().split("\n")
    except UnicodeDecodeError:
        raise MetricsError("this is not text: give the /metrics of a vLLM engine") from None


def _histogram(samples: Mapping[str, Mapping[Labels, float]], name: str) -> Histogram | None:
    by_engine: dict[Labels, dict[float, float]] = defaultdict(dict)
    for labels, value in samples.get(f"{name}_bucket", {}).items():
        bound = dict(labels).get("le")
        if bound is not None:
            by_engine[tuple(label for label in labels if label[0] != "le")][_bound(bound)] = value
    if not by_engine:
        return None
    totals = samples.get(f"{name}_sum")
    if totals is None:
        raise NotAHistogramError("has no sum")
    return histogram_of(summed(list(by_engine.values())), sum(totals.values()))


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotAHistogramError("has buckets whose bounds are no numbers") from None


def _total(values: Mapping[Labels, float] | None) -> float | None:
    if values is None:
        return None
    total = sum(values.values())
    if not (isfinite(total) and 0 <= total <= MOST_COUNTED):
        raise MetricsError(f"{FINISHED} cannot be")
    return total
