"""Table 6 of arXiv 2502.00722 beside the roofline: pipelines of Llama-3-70B, on which nothing is fitted.

Its "req/s" are taken per $/h, since as requests/s of the replica those of L40 would be beyond its peak.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.measurements import Table6Row
from sutler.solver.calibration.factors import Calibration
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.units import FLOPS_PER_TFLOP

# 2,455 input and 18 output tokens, on Ethernet of 5 Gb/s between machines (§5 of the paper).
REQUEST: Final = Workload("w1", 2455, 18, 1.0)
CROSS_MACHINE_GB_PER_S: Final = 0.625
MODEL: Final = "llama-3-70b"
GPUS: Final = {"H100": ("h100-sxm",), "L40": ("l40",), "H100+A100": ("h100-sxm", "a100-sxm4-80gb")}
FLOP_PER_PARAMETER: Final = 2.0


@dataclass(frozen=True, slots=True)
class Table6Estimate:
    """Requests/s of the replica. peak_fraction: what of the dense bf16 peak the slowest GPU type would compute at,
    products with weights only, if the layers were split evenly and the printed rate is right."""

    row: Table6Row
    rate: float
    low: float
    high: float
    peak_fraction: float


def table6_estimates(rows: list[Table6Row], calibration: Calibration) -> list[Table6Estimate]:
    return [_estimate(row, calibration) for row in rows]


def _estimate(row: Table6Row, calibration: Calibration) -> Table6Estimate:
    model = ServedModel(MODEL, resolve_model(MODEL), "bf16", "bf16", (REQUEST,))
    rates = Roofline(calibration, estimates="roofline").rates(model, _layouts(row))
    rate, low, high = (float(one[0, 0]) for one in (rates.rps, rates.low_rps, rates.high_rps))
    return Table6Estimate(row, rate, low, high, _peak_fraction(row))


def _layouts(row: Table6Row) -> Layouts:
    gpus = tuple(resolve_gpu(name) for name in GPUS[row.gpu])
    shape = (1, row.pipeline_parallel)
    gpu = np.arange(row.pipeline_parallel)[None, :] * len(gpus) // row.pipeline_parallel
    links = np.array([one.link_gb_per_s or 0.0 for one in gpus])[gpu]
    crossing = np.zeros(shape, dtype=np.bool_)
    if row.placement == "cross machine":
        crossing[0, row.pipeline_parallel // 2 - 1] = True
    hop = np.where(crossing, CROSS_MACHINE_GB_PER_S, links)
    hop[0, -1] = np.inf
    return Layouts(gpus, gpu, np.full(shape, row.tensor_parallel), links, hop, crossing)


def _peak_fraction(row: Table6Row) -> float:
    tokens_per_s = row.req_per_s * (REQUEST.input_tokens + REQUEST.output_tokens)
    flop_per_s = tokens_per_s * FLOP_PER_PARAMETER * resolve_model(MODEL).active_params / row.pipeline_parallel
    slowest = min(resolve_gpu(name).peak_tflops_bf16_dense or np.inf for name in GPUS[row.gpu])
    return float(flop_per_s / (row.tensor_parallel * slowest * FLOPS_PER_TFLOP))
