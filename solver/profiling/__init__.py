"""Times one transformer layer on the machine at hand, with PyTorch alone: random weights, no model and no engine.

Flow: shapes.py (what is timed) -> measure.py (the loop) -> layer.py, timing.py, all_reduce.py -> outcomes, one per
measurement. device.py alone imports torch, lazily: it is an optional dependency. The service writes the outcomes
down and shows them.
"""

from sutler.solver.profiling.counts import all_reduce_bytes, layer_bytes, layer_flops
from sutler.solver.profiling.device import Device, cpu_device, cuda_device
from sutler.solver.profiling.measure import Outcome, measured
from sutler.solver.profiling.shapes import (
    PRECISIONS,
    Grid,
    Measurement,
    Phase,
    ProfiledPrecision,
    Shard,
    check_profiled,
    full_grid,
    measurements,
    quick_grid,
    shard_of,
)
from sutler.solver.profiling.timing import FULL, QUICK, Effort, Timed

__all__ = [
    "FULL",
    "PRECISIONS",
    "QUICK",
    "Device",
    "Effort",
    "Grid",
    "Measurement",
    "Outcome",
    "Phase",
    "ProfiledPrecision",
    "Shard",
    "Timed",
    "all_reduce_bytes",
    "check_profiled",
    "cpu_device",
    "cuda_device",
    "full_grid",
    "layer_bytes",
    "layer_flops",
    "measured",
    "measurements",
    "quick_grid",
    "shard_of",
]
