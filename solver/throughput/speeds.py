"""What a GPU reaches at a precision with an engine: datasheet peaks times calibrated fractions.

Flow: Gpu, Calibration -> StageSpeeds (here) -> stage_times.py. Also says why a GPU cannot run a precision.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.calibration.factors import Calibration, EngineFactors
from sutler.solver.catalog.entries import Gpu, Precision
from sutler.solver.throughput.stage_times import StageSpeeds
from sutler.solver.units import BYTES_PER_GB, FLOPS_PER_TFLOP

WEIGHT_ONLY: Final = "weight-only: products run at the 16-bit rate"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a GPU computes at a precision. `error` says why it cannot; then the rest means nothing.

    `tflops` is the dense peak, `scale` the calibrated fraction relative to 16-bit.
    """

    tflops: float
    scale: str
    note: str
    error: str | None


def arithmetic(gpu: Gpu, precision: Precision) -> Arithmetic:
    """The peak a GPU offers at a precision, after what serving engines support.

    Without native tensor cores fp8 and fp4 run weight-only from Ampere on, as the Marlin kernels of vLLM do
    (docs.vllm.ai, Quantization, Supported Hardware); int8 and int4 always run weight-only here.
    """
    error = missing_figures(gpu)
    if error is not None:
        return Arithmetic(0.0, "16-bit", "", error)
    base = gpu.peak_tflops_bf16_dense or 0.0
    if precision == "bf16" and not gpu.supports_bf16:
        return Arithmetic(0.0, "16-bit", "", f"{gpu.slug} has no bf16 arithmetic; use precision fp16")
    if precision in ("bf16", "fp16"):
        return Arithmetic(base, "16-bit", "", None)
    native = {"fp8": gpu.peak_tflops_fp8_dense, "fp4": gpu.peak_tflops_fp4_dense}.get(precision)
    if native:
        return Arithmetic(native, precision, "", None)
    if precision in ("fp8", "fp4") and not gpu.supports_bf16:
        return Arithmetic(0.0, "16-bit", "", f"{gpu.slug} has no kernels for {precision}; use int4 or fp16")
    return Arithmetic(base, "16-bit", f"{precision} {WEIGHT_ONLY}", None)


def missing_figures(gpu: Gpu) -> str | None:
    """What the roofline lacks to say anything about this GPU, or None."""
    figures = {
        "memory_bandwidth_gb_per_s": gpu.memory_bandwidth_gb_per_s,
        "peak_tflops_bf16_dense": gpu.peak_tflops_bf16_dense,
    }
    missing = [name for name, value in figures.items() if not value]
    if not missing:
        return None
    return f"{gpu.slug} has no {' and no '.join(missing)}: give the figure under `gpus`, or a measured rate"


def stage_speeds(
    gpus: tuple[Gpu, ...],
    gpu: IntArray,
    intra_gb_per_s: FloatArray,
    precision: Precision,
    calibration: Calibration,
    engine: EngineFactors,
) -> StageSpeeds:
    """Speeds of stages [num_kinds] of GPU index `gpu` with `intra_gb_per_s` between their GPUs.

    GPUs that cannot run the precision get a placeholder of 1 TFLOPS and 1 GB/s; the caller drops them.
    """
    used, kind = np.unique(gpu, return_inverse=True) if len(gpu) else (np.arange(len(gpus)), gpu)
    each = [_gpu_speeds(gpus[index], precision, calibration, engine) for index in used.tolist()]
    column = {name: np.array([speeds[name] for speeds in each])[kind] for name in each[0]} if each else {}
    factors = calibration.factors
    fast = intra_gb_per_s >= calibration.priors.fast_link_gb_per_s
    latency = np.where(fast, factors.allreduce_latency_s, factors.pcie_allreduce_latency_s)
    fraction = np.where(fast, factors.allreduce_fraction, factors.pcie_allreduce_fraction)
    ones = np.ones(len(gpu))
    return StageSpeeds(
        **column,
        allreduce_bandwidth=np.maximum(fraction * intra_gb_per_s, 1e-9) * BYTES_PER_GB,
        allreduce_latency_s=latency,
        step_overhead_s=factors.step_overhead_s * engine.overhead * ones,
        ridge_exponent=factors.ridge_exponent * ones,
    )


def _gpu_speeds(gpu: Gpu, precision: Precision, calibration: Calibration, engine: EngineFactors) -> dict[str, float]:
    factors, kind = calibration.factors, calibration.gpu_class(gpu)
    kernels = calibration.kernels_of(engine.name, gpu, precision)
    how = arithmetic(gpu, precision)
    relative = {"16-bit": 1.0, "fp8": factors.fp8_fraction, "fp4": factors.fp4_fraction}[how.scale]
    base = (gpu.peak_tflops_bf16_dense or 1.0) * FLOPS_PER_TFLOP
    peak = (how.tflops or 1.0) * FLOPS_PER_TFLOP
    memory = (gpu.memory_bandwidth_gb_per_s or 1.0) * BYTES_PER_GB * kind.bandwidth
    bandwidth = memory * factors.bandwidth_fraction * kernels.bandwidth
    flops = peak * factors.compute_fraction * relative * kind.compute * engine.compute * kernels.compute
    return {
        "flops": flops,
        "expert_flops": flops * factors.expert_compute * kernels.expert_compute,
        "attention_flops": base * factors.attention_fraction * kind.compute,
        "bandwidth": bandwidth,
        "expert_bandwidth": bandwidth * factors.expert_bandwidth * kernels.expert_bandwidth,
        "kv_bandwidth": memory * factors.kv_bandwidth_fraction * engine.kv_bandwidth,
        "layer_overhead_s": factors.layer_overhead_s * kind.overhead * engine.overhead,
        "sequence_overhead_s": factors.sequence_overhead_s * kind.overhead * engine.overhead,
    }
