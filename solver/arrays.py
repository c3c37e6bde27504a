"""The types of numpy's arrays, named once: what is in them, not their shape, which docstrings state."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
