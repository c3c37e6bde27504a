"""Whether a benchmark run can be believed, and what of it is kept.

Flow: BenchmarkRun, what the caller adds -> checked (here) -> ProfileRun or the reasons why not.

A run that is wrong would pull every rate near it along, so what cannot be is refused: what no GPU of that kind can
do, times that do not add up, and by Little's law (L = X T) as many requests in flight as there were not. No GPU does
more operations than its peak, or steps that are shorter than reading the weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import RejectedRun
from sutler.service.profiles.runs import BenchmarkRun, ProfileKey, ProfileRun, serving_run
from sutler.service.translation.estimates import engine_of, precision_of
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.catalog import Gpu, ModelSpec
from sutler.solver.catalog.entries import usual_kv_precision
from sutler.solver.errors import InvalidProblemError, UnknownNameError
from sutler.solver.throughput.architecture import PRECISION_BYTES
from sutler.solver.throughput.runs import sequences_that_fit
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.units import BYTES_PER_GB, FLOPS_PER_TFLOP

MOST_FAILED_FRACTION: Final = 0.05  # chosen: what fails sooner than it is served changes the load
# Means of products are not products of means, and tools count TPOT in two ways; beyond this something is wrong.
MOST_SUM_ERROR_FRACTION: Final = 0.3
# Chosen: what means of unlike requests may be off by; below half, a run was over before it was under full load.
MOST_OVER_CONCURRENCY: Final = 1.1
LEAST_OF_CONCURRENCY: Final = 0.5
LEAST_OF_RATE: Final = 0.9  # chosen: runs end while some requests are still under way
# How to state what a file leaves out: option of `sutler profiles import`, and column of a CSV.
OPTIONS: Final = {
    "gpu": "--gpu",
    "model": "--model",
    "precision": "--precision",
    "engine": "--engine",
    "tensor_parallel": "--tensor-parallel",
}
DESCRIBE: Final = "describe it in a problem and name that with --problem"
NEEDED: Final = ("input_tokens", "output_tokens", "req_per_s", "ttft_s")
# Boards clock above what their datasheets promise for long, and parameters are counted to a few percent.
SLACK: Final = 1.05


@dataclass(frozen=True, slots=True)
class Given:
    """What the caller says of every run of a file; it wins over what the file says."""

    gpu: str | None = None
    model: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None


def checked(run: BenchmarkRun, given: Given, names: Names = CATALOGUE) -> ProfileRun | RejectedRun:
    """The run as it is kept, or every reason why it is not."""
    stated = {name: value for name in Given.__slots__ if (value := getattr(given, name)) is not None}
    run = replace(run, **stated)
    reasons = [*_missing(run), *_unusable(run)]
    if reasons:
        return RejectedRun(run.place, tuple(reasons))
    try:
        gpu, spec, key = _served(run, names)
    except UnknownNameError as error:
        if "say which" in error.remedy:  # several GPUs go by the name
            return RejectedRun(run.place, (str(error),))
        remedy = f"say which it is with {OPTIONS[error.field]} (`sutler catalog {error.field}s`), or {DESCRIBE}"
        return RejectedRun(run.place, (f"{error.field}: {error.value!r} is not in the catalogue; {remedy}",))
    except (DocumentError, InvalidProblemError) as error:
        return RejectedRun(run.place, (str(error),))
    kept = _kept(run, key)
    if not is_stated(run.kv_precision):
        kept = _with_a_cache_that_held_them(kept, names)
    reasons = [*_contradictions(run, kept), *impossible(kept, gpu, spec)]
    return RejectedRun(run.place, tuple(reasons)) if reasons else kept


def _missing(run: BenchmarkRun) -> Iterator[str]:
    for name, option in OPTIONS.items():
        if getattr(run, name) is None:
            yield f"{name}: is not in the file; say it with {option}, or in a column"
    for name in NEEDED:
        if not getattr(run, name):
            yield f"{name}: is not in the file; it cannot be fitted to without"
    if run.tpot_s is None and (run.output_tokens or 0) > 1:
        yield "tpot_s: is not in the file; it cannot be fitted to without"


def _unusable(run: BenchmarkRun) -> Iterator[str]:
    """What makes a complete run worthless."""
    for name, tokens in (("input_tokens", run.input_tokens), ("output_tokens", run.output_tokens)):
        if tokens is not None and 0 < tokens < 1:
            yield f"{name}: {tokens:g} is less than one token a request"
    if run.concurrency is None and run.request_rate_rps is None:
        yield (
            "concurrency: is unknown, and so is a rate of arrivals; run with a fixed one "
            "(vLLM: --max-concurrency), or say it in a column"
        )
    asked = (run.completed or 0) + (run.failed or 0)
    if run.failed and run.failed > MOST_FAILED_FRACTION * asked:
        yield f"failed: {run.failed} of {asked} requests; what is left is not the load that was asked for"
    if (
        run.concurrency is None
        and run.request_rate_rps
        and (run.req_per_s or 0) < LEAST_OF_RATE * run.request_rate_rps
    ):
        yield (
            f"req_per_s: {run.req_per_s or 0:.4g} fall behind the {run.request_rate_rps:.4g} requests/s that "
            "arrived: the queue grew for as long as it ran; run with a fixed concurrency, or slower"
        )


def _served(run: BenchmarkRun, names: Names) -> tuple[Gpu, ModelSpec, ProfileKey]:
    """What ran on what. Raises UnknownNameError, DocumentError, InvalidProblemError."""
    gpu = names.gpu(run.gpu or "")
    spec = names.model(run.model or "")
    precision = precision_of("precision", run.precision or "")
    kv_precision = usual_kv_precision(spec, precision)
    if is_stated(run.kv_precision):
        kv_precision = precision_of("kv_precision", run.kv_precision or "")
    key = ProfileKey(
        gpu.slug, spec.id, precision, kv_precision, engine_of(run.engine or ""), run.engine_version or ""
    )
    return gpu, spec, key


def is_stated(kv_precision: str | None) -> bool:
    """Whether it is more than the engine's own choice."""
    return bool(kv_precision) and (kv_precision or "").lower() != "auto"


def _with_a_cache_that_held_them(kept: ProfileRun, names: Names) -> ProfileRun:
    """In fp8 where its checkpoint is in fp8 or fp4 and a 16-bit cache cannot have held what was in flight: then the
    others would have waited for their first token for most of their time. Many servers are started so (InferenceMAX:
    --kv-cache-dtype fp8), and few results say it."""
    if kept.key.precision not in ("fp8", "fp4") or kept.key.kv_precision == "fp8" or kept.pipeline_parallel > 1:
        return kept
    room = sequences_that_fit(serving_run(kept, names))
    waited = kept.ttft_s / max(kept.ttft_s + (kept.output_tokens - 1) * kept.tpot_s, 1e-9)
    if kept.concurrency <= MOST_OVER_CONCURRENCY * room or waited > (1 - room / kept.concurrency) / 2:
        return kept
    return replace(kept, key=replace(kept.key, kv_precision="fp8"))


def _kept(run: BenchmarkRun, key: ProfileKey) -> ProfileRun:
    return ProfileRun(
        key=key,
        tensor_parallel=run.tensor_parallel or 1,
        pipeline_parallel=run.pipeline_parallel or 1,
        input_tokens=run.input_tokens or 0.0,
        output_tokens=run.output_tokens or 0.0,
        concurrency=max(min(_in_flight(run), run.concurrency or float("inf")), 1.0),
        req_per_s=run.req_per_s or 0.0,
        ttft_s=run.ttft_s or 0.0,
        tpot_s=run.tpot_s or 0.0,
        completed=run.completed,
        duration_s=run.duration_s,
        measured_at=run.measured_at,
        request_rate_rps=run.request_rate_rps if run.concurrency is None else None,
        length_spread_fraction=run.length_spread_fraction,
    )


def _whole_s(run: BenchmarkRun) -> float:
    """TTFT and TPOT added up, which exclude what a client spends otherwise."""
    return (run.ttft_s or 0.0) + max((run.output_tokens or 1.0) - 1.0, 0.0) * (run.tpot_s or 0.0)


def _in_flight(run: BenchmarkRun) -> float:
    """The requests in flight on average, by Little's law."""
    return (run.req_per_s or 0.0) * (run.e2e_s or _whole_s(run))


def _contradictions(run: BenchmarkRun, kept: ProfileRun) -> Iterator[str]:
    whole_s = _whole_s(run)
    if run.e2e_s is not None and kept.ttft_s > run.e2e_s:
        yield f"ttft_s: {kept.ttft_s:.4g} is above the {run.e2e_s:.4g} s that a request takes (e2e_s)"
    elif run.e2e_s and abs(whole_s / run.e2e_s - 1) > MOST_SUM_ERROR_FRACTION:
        yield (
            f"e2e_s: {run.e2e_s:.4g} is far from ttft_s + (output_tokens - 1) tpot_s = {whole_s:.4g}: "
            "means of different requests, or different units"
        )
    if run.concurrency is None:
        return
    flying = _in_flight(run)
    if flying > MOST_OVER_CONCURRENCY * run.concurrency:
        yield (
            f"concurrency: {run.concurrency:g} contradicts the {flying:.4g} requests in flight that req_per_s and "
            f"the latencies make (Little's law){_hint(flying / run.concurrency)}"
        )
    elif flying < LEAST_OF_CONCURRENCY * run.concurrency:
        yield (
            f"concurrency: only {flying:.4g} of {run.concurrency:g} requests were in flight on average (Little's "
            f"law){_hint(flying / run.concurrency)}; send at least ten times as many requests as the concurrency"
        )


def _hint(ratio: float) -> str:
    """A factor of about a thousand is a unit."""
    return ": are the times in seconds?" if not 1 / 300 < ratio < 300 else ""


def impossible(run: ProfileRun, gpu: Gpu, spec: ModelSpec) -> Iterator[str]:
    """Each reason why these numbers cannot have been measured on that GPU."""
    how = arithmetic(gpu, run.key.precision)
    if how.error is not None:
        yield f"gpu: {how.error}"
        return
    gpus = run.tensor_parallel * run.pipeline_parallel
    on = f"{gpus} x {gpu.slug}"
    weights_gb = spec.total_params * PRECISION_BYTES[run.key.precision] / BYTES_PER_GB
    if weights_gb > gpus * gpu.memory_gb:
        yield f"gpu: the {weights_gb:.0f} GB of {spec.id} at {run.key.precision} exceed the memory of {on}"
    yield from _too_many_operations(run, spec, on, gpus * how.tflops * FLOPS_PER_TFLOP)
    if gpu.memory_bandwidth_gb_per_s and run.output_tokens > 1:
        # Stages of a pipeline read one after the other, so only tensor parallelism shortens a step.
        yield from _too_quick(run, spec, on, run.tensor_parallel * gpu.memory_bandwidth_gb_per_s * BYTES_PER_GB)


def _too_many_operations(run: ProfileRun, spec: ModelSpec, on: str, peak_flops: float) -> Iterator[str]:
    """A token costs two operations per parameter it meets; attention comes on top."""
    flops = 2.0 * spec.active_params * (run.input_tokens + run.output_tokens) * run.req_per_s
    if flops > SLACK * peak_flops:
        yield (
            f"req_per_s: {run.req_per_s:.4g} needs {flops / FLOPS_PER_TFLOP:.0f} TFLOPS, more than the "
            f"{peak_flops / FLOPS_PER_TFLOP:.0f} of {on}: wrong GPU, precision or token counts, or prompts that came "
            "out of the prefix cache (run with random prompts)"
        )


def _too_quick(run: ProfileRun, spec: ModelSpec, on: str, bytes_per_s: float) -> Iterator[str]:
    least_s = spec.active_params * PRECISION_BYTES[run.key.precision] / bytes_per_s
    if run.tpot_s * SLACK < least_s:
        yield (
            f"tpot_s: {run.tpot_s:.4g} is less than the {least_s:.4g} s in which {on} can read the weights that a "
            "token meets: wrong GPU, precision or unit, or speculative decoding (run without)"
        )
