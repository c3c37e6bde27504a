"""What no GPU of a kind can do: more operations than its peak, steps that are shorter than reading the weights."""

from collections.abc import Iterator
from typing import Final

from sutler.service.profiles.runs import ProfileRun
from sutler.solver.catalog import Gpu, ModelSpec
from sutler.solver.throughput.architecture import PRECISION_BYTES
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.units import BYTES_PER_GB, FLOPS_PER_TFLOP

# Boards clock above what their datasheets promise for long, and parameters are counted to a few percent.
SLACK: Final = 1.05


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
