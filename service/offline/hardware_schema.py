"""What an application runs on, in its file: GPUs at hand, or what may be rented and on which terms.

Used by application_schema.py; translate.py makes the solver's hardware of it.
"""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, model_validator

from sutler.service.documents.fields import Bandwidth, Document, GpuName, Name, Seconds, UsdPerHour, reject
from sutler.service.documents.problem_parts import ParallelSize
from sutler.service.errors import FieldProblem, short_repr
from sutler.solver.offline.hardware import ENGINE_START_S, READ_GB_PER_S

MOST_GPUS = 128
GpuCount = Annotated[int, Field(ge=1, le=MOST_GPUS)]
CardNumber = Annotated[int, Field(ge=0, le=MOST_GPUS - 1)]
PositiveBandwidth = Annotated[float, Field(gt=0, le=1e6)]
SecondsOrZero = Annotated[float, Field(ge=0, le=1e7)]
Usd = Annotated[float, Field(ge=0, le=1e9)]
IslandNumbers = Annotated[tuple[CardNumber, ...], Field(strict=False, min_length=1, max_length=MOST_GPUS)]


class LoadSeconds(Document):
    """How long one model was measured to take from its start to its first request."""

    model: Name
    """`name` of the model."""
    tensor_parallel: ParallelSize
    """GPUs of the replica."""
    seconds: SecondsOrZero
    """Seconds, in place of the estimate from start and reading."""


class LoadingDocument(Document):
    """How long it takes until a replica serves."""

    engine_start_s: SecondsOrZero = ENGINE_START_S
    """Seconds of a start that do not depend on the weights."""
    read_gb_per_s: PositiveBandwidth = READ_GB_PER_S
    """10^9 bytes/s at which each GPU reads its share of the weights from the disk."""
    download_gb_per_s: PositiveBandwidth | None = None
    """10^9 bytes/s at which a machine fetches weights that it does not have; unset: they are on its disk."""
    table: Annotated[tuple[LoadSeconds, ...], Field(strict=False, max_length=10_000)] = ()
    """What was measured."""


class HardwareDocument(Document):
    """The GPUs of one machine, all alike."""

    gpu: GpuName
    """Slug of the GPU (`sutler catalog gpus`), or a name under `gpus`."""
    gpus: GpuCount | None = None
    """How many; may be left out where `islands` lists them."""
    island_gpus: GpuCount | None = None
    """How many of them share fast links: 2 for pairs on NVLink bridges; unset: all."""
    islands: Annotated[tuple[IslandNumbers, ...], Field(strict=False, min_length=1, max_length=MOST_GPUS)] | None = (
        None
    )
    """The same as lists of GPU numbers, in place of `island_gpus`: [[0, 1], [2, 3]]."""
    island_gb_per_s: PositiveBandwidth | None = None
    """10^9 bytes/s inside an island, one direction, per GPU; unset: as the catalogue has it."""
    across_gb_per_s: Bandwidth | None = None
    """10^9 bytes/s between islands, one direction, per GPU; 0: no replica spans islands; unset: PCIe 4."""
    loading: LoadingDocument = LoadingDocument()
    """How long models take to load."""

    @model_validator(mode="after")
    def _check_islands(self) -> Self:
        reject([*_count_rules(self), *_island_rules(self)])
        return self


class RentalTerms(Document):
    """What renting costs beside the price, and what happens before a machine is of use."""

    minimum_s: SecondsOrZero = 0.0
    """Seconds that are billed at least."""
    billing_increment_s: Seconds = 1.0
    """Bills are rounded up to whole multiples of this."""
    start_up_s: SecondsOrZero = 120.0
    """Seconds from the order until models can be loaded; they are billed."""
    loading: LoadingDocument = LoadingDocument()
    """How long models take to load on rented machines; without a download_gb_per_s, weights come as fast as offers
    say (inet_down_gb_per_s), and are on the disks only where none says it."""


class RentalLimits(Document):
    """How much may be rented."""

    max_gpus: GpuCount | None = None
    """GPUs in all; unset: any number."""
    max_machines: GpuCount | None = None
    """Machines; unset: any number."""


class OfflineMinTime(Document):
    """Finish as early as possible."""

    kind: Literal["min_time"]
    """Which objective."""
    budget_usd: Usd | None = None
    """USD that may be spent in all; only with a market."""
    budget_usd_per_hour: UsdPerHour | None = None
    """USD per hour that may be rented; only with a market."""


class OfflineMinCost(Document):
    """Finish by the deadline for the least USD; only with a market."""

    kind: Literal["min_cost"]
    """Which objective."""
    deadline_s: Seconds
    """Seconds from the start, machines' start-up counted."""
    budget_usd_per_hour: UsdPerHour | None = None
    """USD per hour that may be rented."""


OfflineObjective = Annotated[OfflineMinTime | OfflineMinCost, Discriminator("kind")]


def _count_rules(hardware: HardwareDocument) -> list[FieldProblem]:
    listed = None if hardware.islands is None else sum(len(island) for island in hardware.islands)
    if hardware.gpus is None:
        remedy = "is missing: say how many GPUs there are, or list them under islands"
        return [FieldProblem("gpus", None, remedy)] if listed is None else []
    if listed is not None and listed != hardware.gpus:
        remedy = f"islands list {listed} GPUs: make them agree, or leave gpus out"
        return [FieldProblem("gpus", str(hardware.gpus), remedy)]
    if hardware.island_gpus is not None and hardware.island_gpus > hardware.gpus:
        remedy = f"must be at most gpus ({hardware.gpus})"
        return [FieldProblem("island_gpus", str(hardware.island_gpus), remedy)]
    return []


def _island_rules(hardware: HardwareDocument) -> list[FieldProblem]:
    if hardware.islands is None:
        return []
    problems = []
    if hardware.island_gpus is not None:
        shown = str(hardware.island_gpus)
        problems.append(FieldProblem("island_gpus", shown, "stands beside islands: keep one of the two"))
    seen: dict[int, int] = {}
    for position, island in enumerate(hardware.islands):
        for number in island:
            if number in seen:
                remedy = f"GPU {number} is in islands[{seen[number]}] already: put every GPU on one island"
                problems.append(FieldProblem(f"islands[{position}]", short_repr(list(island)), remedy))
            seen.setdefault(number, position)
    return problems
