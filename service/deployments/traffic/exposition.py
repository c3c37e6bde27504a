"""Engines' metrics: which of them count, and how an engine's `/metrics` is read.

vLLM: https://docs.vllm.ai/en/latest/design/metrics/
SGLang: https://docs.sglang.io/references/production_metrics.html
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from sutler.service.deployments.traffic.counters import Counters, Total
from sutler.service.deployments.traffic.histograms import (
    MOST_COUNTED,
    Histogram,
    NotAHistogramError,
    first,
    histogram_of,
    summed,
)

BEGAN: Final = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What an engine calls what it counts. `tpot`: a request's mean, as latency goals mean it, what older versions
    call so, and the pause between two tokens; the first that has counted anything. `cache_found` is in tokens of
    prompts, as `cache_asked`."""

    title: str
    prompt: str
    generation: str
    finished: str
    ttft: str
    tpot: tuple[str, ...]
    e2e: str
    queue: str
    waiting: str
    cache_asked: str
    cache_found: str
    remedy: str

    @property
    def histograms(self) -> tuple[str, ...]:
        """Those that are read with their buckets."""
        return self.prompt, self.generation, self.ttft, *self.tpot

    @property
    def totals(self) -> tuple[str, ...]:
        """Those of which the count and the sum are read."""
        return self.e2e, self.queue

    @property
    def wanted(self) -> frozenset[str]:
        """The names of all samples that are read."""
        parts = {f"{name}{part}" for name in self.histograms for part in ("_bucket", "_sum")}
        parts |= {f"{name}{part}" for name in self.totals for part in ("_count", "_sum")}
        return frozenset({self.finished, self.waiting, self.cache_asked, self.cache_found, BEGAN} | parts)


VLLM: Final = EngineMetrics(
    title="vLLM",
    prompt="vllm:request_prompt_tokens",
    generation="vllm:request_generation_tokens",
    finished="vllm:request_success_total",
    ttft="vllm:time_to_first_token_seconds",
    tpot=(
        "vllm:request_time_per_output_token_seconds",
        "vllm:time_per_output_token_seconds",
        "vllm:inter_token_latency_seconds",
    ),
    e2e="vllm:e2e_request_latency_seconds",
    queue="vllm:request_queue_time_seconds",
    waiting="vllm:num_requests_waiting",
    cache_asked="vllm:prefix_cache_queries_total",
    cache_found="vllm:prefix_cache_hits_total",
    remedy="give the /metrics of a vLLM engine",
)
SGLANG: Final = EngineMetrics(
    title="SGLang",
    prompt="sglang:prompt_tokens_histogram",
    generation="sglang:generation_tokens_histogram",
    finished="sglang:num_requests_total",
    ttft="sglang:time_to_first_token_seconds",
    tpot=("sglang:time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
    e2e="sglang:e2e_request_latency_seconds",
    queue="sglang:queue_time_seconds",
    waiting="sglang:num_queue_reqs",
    cache_asked="sglang:prompt_tokens_total",
    cache_found="sglang:cached_tokens_total",
    remedy="give the /metrics of an SGLang server that runs with --enable-metrics --collect-tokens-histogram",
)
ENGINES: Final = {"vllm": VLLM, "sglang": SGLANG}

_NAME_ENDS: Final = re.compile(r"[{\s]")

Labels = tuple[tuple[str, str], ...]


class MetricsError(Exception):
    """What was answered is not what an engine counts. The message holds nothing of the answer."""


def counters_of(content: bytes, of: EngineMetrics = VLLM) -> Counters:
    """Reads the text of `/metrics`, summed over what one process serves. Raises MetricsError."""
    samples = _samples(content, of)
    try:
        prompt, generation = (_histogram(samples, name) for name in (of.prompt, of.generation))
        ttft, *tpot = (_histogram(samples, name) for name in (of.ttft, *of.tpot))
    except NotAHistogramError as error:
        raise MetricsError(f"a histogram {error}") from None
    if prompt is None or generation is None:
        missing = of.prompt if prompt is None else of.generation
        raise MetricsError(f"there is no {missing}: {of.remedy}")
    began = [value for value in samples.get(BEGAN, {}).values() if isfinite(value)]
    return Counters(
        prompt,
        generation,
        _sum(samples, of.finished),
        ttft,
        first(tpot),
        max(began, default=None),
        e2e=_total(samples, of.e2e),
        queue=_total(samples, of.queue),
        waiting=_sum(samples, of.waiting),
        cache_asked=_sum(samples, of.cache_asked),
        cache_found=_sum(samples, of.cache_found),
        served=len({dict(labels).get("model_name") for labels in samples.get(f"{of.prompt}_sum", {})}),
    )


def _samples(content: bytes, of: EngineMetrics) -> dict[str, dict[Labels, float]]:
    """The samples by name, then by labels; only what is wanted is parsed, since an engine tells much else."""
    from prometheus_client.parser import text_string_to_metric_families

    wanted = of.wanted
    text = "\n".join(line for line in _lines(content, of) if _NAME_ENDS.split(line, 1)[0] in wanted)
    found: dict[str, dict[Labels, float]] = defaultdict(dict)
    try:
        for family in text_string_to_metric_families(f"{text}\n"):
            for sample in family.samples:
                found[sample.name][tuple(sorted(sample.labels.items()))] = float(sample.value)
    except (ValueError, TypeError, IndexError, KeyError):
        raise MetricsError(f"this is not Prometheus' text format: {of.remedy}") from None
    return found


def _lines(content: bytes, of: EngineMetrics) -> Iterable[str]:
    try:
        return content.decode().split("\n")
    except UnicodeDecodeError:
        raise MetricsError(f"this is not text: {of.remedy}") from None


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


def _total(samples: Mapping[str, Mapping[Labels, float]], name: str) -> Total | None:
    """The count and the sum of a histogram."""
    count, total = _sum(samples, f"{name}_count"), _sum(samples, f"{name}_sum")
    return None if count is None or total is None else Total(count, total)


def _sum(samples: Mapping[str, Mapping[Labels, float]], name: str) -> float | None:
    """Of all that one process serves; None where it does not tell."""
    values = samples.get(name)
    if values is None:
        return None
    total = sum(values.values())
    if not (isfinite(total) and 0 <= total <= MOST_COUNTED):
        raise MetricsError(f"{name} cannot be")
    return total
