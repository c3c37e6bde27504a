"""What every source of throughput answers, for many replica layouts and all workloads of one model at once.

A layout is a pipeline of stages; a stage is a tensor-parallel group of equal GPUs. Arrays are padded to the
longest pipeline. Candidates asks for thousands of layouts in one call; verify and estimate ask for one.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray, take_rows
from sutler.solver.catalog.entries import Gpu
from sutler.solver.problem import Role

RatesAt = Literal["nominal", "low"]
"""What is counted on: the rates themselves, or the low end of their error bands."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """Replica layouts, all arrays [num_layouts, max_stages]; column 0 is always a stage.

    gpu: index into `gpus`, -1 where there is no such stage (padding at the end).
    tensor_parallel: GPUs that share a layer (0 in padding).
    intra_gb_per_s: bandwidth one direction, per GPU, inside the stage's machine.
    hop_gb_per_s: bandwidth from this stage to the next; inf after the last stage and in padding.
    cross_machine: the hop leaves the machine (False after the last stage and in padding).
    layers: layers on each stage (0 in padding), or None to let the source balance them.
    role: what all of them do; kv_gb_per_s [num_layouts, max_stages]: for prefill and decode what a stage has of its
    machine's link to hand over keys and values; None where that is not looked at.
    power_cap_fraction: share of their TDP to which all GPUs are capped; `gpus` are the capped ones.
    data_parallel [num_layouts]: ranks of attention, each tensor_parallel GPUs with the requests of its own, while the
    experts are spread over all of them; None: 1.
    """

    gpus: tuple[Gpu, ...]
    gpu: IntArray
    tensor_parallel: IntArray
    intra_gb_per_s: FloatArray
    hop_gb_per_s: FloatArray
    cross_machine: BoolArray
    layers: IntArray | None = None
    role: Role = "aggregated"
    kv_gb_per_s: FloatArray | None = None
    power_cap_fraction: float = 1.0
    data_parallel: IntArray | None = None

    def __len__(self) -> int:
        return int(self.gpu.shape[0])

    @property
    def ranks(self) -> IntArray:
        """The ranks of attention [num_layouts]."""
        return np.ones(len(self), dtype=np.int64) if self.data_parallel is None else self.data_parallel

    def only(self, layout: int) -> "Layouts":
        """One of them."""
        return self.take(slice(layout, layout + 1))

    def take(self, rows: IntArray | slice) -> "Layouts":
        """Returns the entries at `rows`, in that order."""
        return take_rows(self, rows)


@dataclass(frozen=True, slots=True)
class Rates:
    """What the layouts do with all of their sequences busy. W: workloads of the model, in their order.

    rps [num_layouts, W]: sustained requests/s of one replica that serves nothing else; 0: cannot.
    batch [num_layouts, W]: concurrent sequences at that rate (0 where rps is 0 or unknown).
    low_rps, high_rps [num_layouts, W]: the stated error band.
    layers [num_layouts, max_stages]: the split used; 0 in padding, all 0 where the architecture is unknown.
    fits [num_layouts]: weights plus the KV cache of one sequence of some workload, and of the model's
    max_context_tokens, fit on every stage.
    """

    rps: FloatArray
    batch: IntArray
    low_rps: FloatArray
    high_rps: FloatArray
    layers: IntArray
    fits: BoolArray


@dataclass(frozen=True, slots=True)
class RateBasis:
    """What a rate rests on: its source, the version of the source's data, and a sentence or several."""

    source: str
    version: str
    detail: str


@dataclass(frozen=True, slots=True)
class Points:
    """Operating points of layouts: under a cap, with some workloads admitted, at the load that keeps their limits.

    layout [num_points]: index; max_batch [num_points]: sequences at most, 0: unknown.
    rps [num_points, V]: requests/s of one replica within all limits; 0: not admitted. First of each workload, where
    any mixture with sum rate / rps <= 1 is within them, or of all workloads of one fixed mix together (mixes.py).
    low_rps: the low end of the band.
    layers [num_points, max_stages]: as in Rates.
    """

    layout: IntArray
    max_batch: IntArray
    rps: FloatArray
    low_rps: FloatArray
    layers: IntArray

    def __len__(self) -> int:
        return len(self.layout)

    def take(self, rows: IntArray) -> "Points":
        """Returns the entries at `rows`, in that order."""
        return take_rows(self, rows)
