"""Traffic for tests: windows of requests at a steady rate, and what engines say of it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final

from sutler.service.deployments.traffic.counters import Counters
from sutler.service.deployments.traffic.histograms import Histogram
from sutler.service.deployments.traffic.window import ModelTraffic, Observation, WorkloadShape, model_traffic, work

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUESTION: Final = WorkloadShape("question", 500, 250)
DOCUMENT: Final = WorkloadShape("document", 3000, 300)
SHAPES: Final = (QUESTION, DOCUMENT)
SIZE: Final = (500.0, 250.0)
TOKENS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LABELS: Final = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
NAMES: Final = {
    "prompt": "vllm:request_prompt_tokens",
    "generation": "vllm:request_generation_tokens",
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def an_observation(
    requests: float = 100.0,
    *,
    length_s: float = 10.0,
    until: datetime = NOW,
    source: str = "gateway",
    size: tuple[float, float] = SIZE,
) -> Observation:
    """Requests of one size in the seconds before an instant; none: an empty window."""
    buckets = ((*size, requests),) if requests else ()
    return Observation("chat", source, until - timedelta(seconds=length_s), until, requests, buckets)


def steady(rps: float, seconds: float, *, length_s: float = 10.0, until: datetime = NOW, **others: Any) -> Any:
    """Windows without a gap that end at an instant."""
    ends = (until - timedelta(seconds=length_s * number) for number in range(round(seconds / length_s)))
    return [an_observation(rps * length_s, length_s=length_s, until=end, **others) for end in ends]


def traffic_of(observations: Sequence[Observation], **others: Any) -> ModelTraffic:
    """Of a model of which 22 requests/s are planned, unless a test says otherwise."""
    usual: dict[str, Any] = {"now": NOW, "window_s": 120.0, "longest_s": 3600.0, "planned_rps": 22.0}
    return model_traffic("chat", SHAPES, observations, **{**usual, **others})


def a_histogram(
    values: Sequence[float] | Mapping[float, int] = (), *, bounds: tuple[float, ...] = TOKENS
) -> Histogram:
    """Of these values, or of so many of each."""
    counted = dict(values) if isinstance(values, Mapping) else {value: values.count(value) for value in set(values)}
    counts = [0.0] * (len(bounds) + 1)
    for value, times in counted.items():
        counts[sum(bound < value for bound in bounds)] += times
    return Histogram(bounds, tuple(counts), sum(value * times for value, times in counted.items()))


def counted(*sizes: tuple[float, float], **others: Any) -> Counters:
    """What an engine counts of requests of these sizes."""
    prompt, generation = a_histogram([size for size, _ in sizes]), a_histogram([length for _, length in sizes])
    return Counters(prompt, generation, **{"finished": float(len(sizes)), **others})


def histogram_lines(name: str, histogram: Histogram, labels: str = LABELS) -> list[str]:
    """As the client library writes them."""
    ends = [f"{bound:.1f}" if bound >= 1 else f"{bound}" for bound in histogram.bounds] + ["+Inf"]
    return [
        f"# HELP {name} Of requests that have finished.",
        f"# TYPE {name} histogram",
        *(
            f'{name}_bucket{{{labels},le="{end}"}} {n}'
            for end, n in zip(ends, accumulate(histogram.counts), strict=True)
        ),
        f"{name}_count{{{labels}}} {histogram.count}",
        f"{name}_sum{{{labels}}} {histogram.total}",
        f"{name}_created{{{labels}}} 1.763589241e+09",
    ]


def metrics_text(counters: Counters, *, labels: str = LABELS) -> bytes:
    """The `/metrics` of an engine that has counted this."""
    lines = [
        "# HELP python_gc_objects_collected_total Objects collected during gc",
        "# TYPE python_gc_objects_collected_total counter",
        'python_gc_objects_collected_total{generation="0"} 10432.0',
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{labels}}} 3.0",
        f"vllm:prompt_tokens_total{{{labels}}} {counters.prompt.total}",
    ]
    if counters.began_s is not None:
        lines += ["# TYPE process_start_time_seconds gauge", f"process_start_time_seconds {counters.began_s!r}"]
    if counters.finished is not None:
        reasons = {"stop": counters.finished, "length": 0.0, "abort": 0.0}
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [f'vllm:request_success_total{{{labels},finished_reason="{r}"}} {n}' for r, n in reasons.items()]
    for part, name in NAMES.items():
        histogram = getattr(counters, part)
        lines += [] if histogram is None else histogram_lines(name, histogram, labels)
    return ("\n".join(lines) + "\n").encode()


def peak_factor(found: ModelTraffic) -> float:
    """How many times the work of now there was at most."""
    return found.peak_work / sum(work(w.rate_rps, w.input_tokens, w.output_tokens) for w in found.workloads)
