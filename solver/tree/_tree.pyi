"""What module.cpp defines."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sutler.solver.arrays import BoolArray, FloatArray

class Options:
    def __init__(
        self, *, cutoff: float, gap: float, most_nodes: int, root_rounds: int, strong_candidates: int = 8
    ) -> None: ...

class Outcome:
    bound: float
    has_ended: bool
    nodes: int
    problems: int

def search(
    cost: FloatArray,
    tilt: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    is_integer: BoolArray,
    is_awake: FloatArray | BoolArray,
    matrix: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    counts: NDArray[np.int16],
    options: Options,
    separate: Callable[[FloatArray, int], tuple[float, FloatArray, FloatArray]],
    goes_on: Callable[[float, int], bool],
) -> Outcome: ...
