"""The GPUs that an application runs on: which of them share fast links, and how long a model takes to load.

Flow: the caller's file, or offers for rent (renting.py) -> Hardware (here) -> costs.py, placement.py, execution.py.

A tensor-parallel group lies on one island (GPUs joined by NVLink or one PCIe switch), or on whole islands of one
host, at the speed of the link between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import InvalidProblemError

# SamuLLM §5.1, 8 x A100 80 GB: chatglm3-6b (12.5 GB) loads in about 18 s (1 GPU against 8 for 1,000 and for 10,000
# requests, with and without loading); vicuna-13b (26 GB) in 30 s (§2). Two equations, two unknowns.
ENGINE_START_S: Final = 7.0
READ_GB_PER_S: Final = 1.1


@dataclass(frozen=True, slots=True)
class Island:
    """GPUs of a host by their numbers there, each reaching the others at `gb_per_s` (one direction)."""

    host: int
    gpus: tuple[int, ...]
    gb_per_s: float


@dataclass(frozen=True, slots=True)
class Loading:
    """Seconds until a replica serves: `engine_start_s`, plus each GPU's share of the weights at `read_gb_per_s`.

    `download_gb_per_s`: a host fetches the weights first, one model after the other in the order of their first use,
    beside whatever runs; None: they are on its disk. `table`: seconds by (node, tensor-parallel degree) that were
    measured, in place of start and read.
    """

    engine_start_s: float = ENGINE_START_S
    read_gb_per_s: float = READ_GB_PER_S
    download_gb_per_s: float | None = None
    table: Mapping[tuple[str, int], float] = field(default_factory=dict)

    def seconds(self, node: str, weights_gb: float, tensor_parallel: int) -> float:
        measured = self.table.get((node, tensor_parallel))
        if measured is not None:
            return measured
        return self.engine_start_s + weights_gb / tensor_parallel / self.read_gb_per_s


@dataclass(frozen=True, slots=True)
class Hardware:
    """Equal GPUs on islands. `across_gb_per_s`: between islands of a host, one direction, per GPU; 0: no group may
    span islands."""

    gpu: Gpu
    islands: tuple[Island, ...]
    across_gb_per_s: float = 0.0
    loading: Loading = Loading()

    def __post_init__(self) -> None:
        numbers = [(island.host, gpu) for island in self.islands for gpu in island.gpus]
        if not numbers:
            raise InvalidProblemError("hardware.islands", [], "name at least one GPU")
        if len(set(numbers)) < len(numbers):
            twice = next(number for number in numbers if numbers.count(number) > 1)
            raise InvalidProblemError("hardware.islands", twice[1], "put every GPU on one island")

    @property
    def gpus(self) -> int:
        return sum(len(island.gpus) for island in self.islands)

    @property
    def hosts(self) -> int:
        return len({island.host for island in self.islands})


def one_node(gpu: Gpu, gpus: int, *, island_gpus: int | None = None, loading: Loading | None = None) -> Hardware:
    """`gpus` cards in one host, on islands of `island_gpus` each (None: all on one) at the catalogue's link; between
    islands over PCIe 4."""
    size = island_gpus or gpus
    link = gpu.link_gb_per_s or PCIE4_GB_PER_S
    islands = tuple(Island(0, tuple(range(start, min(start + size, gpus))), link) for start in range(0, gpus, size))
    return Hardware(gpu, islands, min(link, PCIE4_GB_PER_S), loading or Loading())


PCIE4_GB_PER_S: Final = 32.0  # 16 lanes, one direction
