"""CUDA compute capability of a GPU, by its architecture (https://developer.nvidia.com/cuda-gpus)."""

from collections.abc import Mapping
from typing import Final

from sutler.solver.catalog.entries import Gpu

_OF_ARCHITECTURE: Final[Mapping[str, float]] = {
    "Volta": 7.0,
    "Turing": 7.5,
    "Ampere": 8.6,
    "Ada": 8.9,
    "Hopper": 9.0,
    "Blackwell": 12.0,
}
# Chips of the data-centre line that differ from the rest of their architecture, by the beginning of their slugs.
_OF_CHIP: Final[Mapping[str, float]] = {
    **dict.fromkeys(("a100", "a800", "a30"), 8.0),
    **dict.fromkeys(("b200", "gb200"), 10.0),
    **dict.fromkeys(("b300", "gb300"), 10.3),
}


def compute_capability(gpu: Gpu) -> float | None:
    """What the GPU supports, such as 8.9; None for other vendors and for GPUs of the caller's own."""
    of_architecture = _OF_ARCHITECTURE.get(gpu.architecture or "")
    if of_architecture is None:
        return None
    return _OF_CHIP.get(gpu.slug.partition("-")[0], of_architecture)
