"""The plan document of an offline application: what runs when, on which GPUs, and how good that is.

Units: seconds, tokens, USD, GPU-seconds. Keys are only ever added, never changed or taken away.
"""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.fields import Document, Timestamp
from sutler.service.documents.model import GpuDocument, ModelSpecDocument, PrecisionName
from sutler.service.documents.plan import RentalDocument
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.hardware_schema import LoadingDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.solver.offline.plan import Strategy


class OfflineObjectiveResult(Document):
    """How good the plan is and how good any plan could be."""

    kind: Literal["min_time", "min_cost"]
    """Which objective."""
    value: float | None
    """Seconds or USD; null without a plan. Seconds count from the start of the application or, where machines are
    rented, from their order, so that their start-up is in them."""
    bound: float | None
    """Proven for the lengths as they were drawn: no plan is better than this; same unit; null where nothing is."""
    relative_gap: float | None
    """|bound - value| / |value|."""


class LowerBoundDocument(Document):
    """No schedule on this hardware is faster, for the lengths as they were drawn."""

    seconds: float
    """The larger of the two below."""
    area_s: float
    """All work at the best rate on all GPUs."""
    critical_path_s: float
    """The longest chain of requests that wait for one another, each alone on the fastest replica."""


class IslandDocument(Document):
    """GPUs that share fast links."""

    host: int
    """Number of the machine, from 0."""
    gpus: tuple[int, ...]
    """Their numbers there."""
    gb_per_s: float
    """10^9 bytes/s between them, one direction, per GPU."""


class PlannedHardware(Document):
    """The GPUs that the plan runs on, all alike."""

    gpu: str
    """Slug of the GPU."""
    islands: tuple[IslandDocument, ...]
    """All GPUs."""
    across_gb_per_s: float
    """10^9 bytes/s between islands of a machine, one direction, per GPU; 0: no replica spans islands."""
    loading: LoadingDocument
    """How long models take to load."""
    figures: GpuDocument
    """What the GPU is."""


class OfflineRental(RentalDocument):
    """`count` machines of one offer, for as long as the application takes."""

    hosts: tuple[int, ...]
    """Their numbers in the plan."""
    billed_s: float
    """Seconds that are billed for each of them, from the order to the end of the last stage that uses it."""
    usd: float
    """USD for all of them together."""


class PlacedGpu(Document):
    """One GPU."""

    host: int
    """Number of its machine."""
    gpu: int
    """Its number there."""


class ScheduledModel(Document):
    """A model with its execution plan."""

    model: str
    """The caller's name of the model."""
    data_parallel: int
    """Replicas."""
    tensor_parallel: int
    """GPUs of each."""


class StageEnd(Document):
    """When a stage ends although no model has finished."""

    model: str
    """The caller's name of the model."""
    fraction: float
    """Share of all its work that is done by then."""


class ScheduledStage(Document):
    """Models that run together. A stage ends when one of them finishes, or at `until`, if that comes first."""

    models: tuple[ScheduledModel, ...]
    """Which, and how."""
    until: StageEnd | None
    """Null: it ends when a model finishes."""


class PlacedReplica(Document):
    """One running replica."""

    number: int
    """Its number among those of its model, from 0."""
    gpus: tuple[PlacedGpu, ...]
    """Where it runs."""
    ready_s: float
    """From when on it serves, in seconds from the start of the application."""
    loaded: bool
    """Whether it is loaded in this stage: it is new, or had to move."""


class StageModel(ScheduledModel):
    """A model in a stage, as it ran in the simulation."""

    replicas: tuple[PlacedReplica, ...]
    """Its replicas."""
    finished_requests: int
    """Finished by the end of the stage, counted from the start of the application."""
    written_tokens: int
    """Written by the end of the stage, counted from the start of the application."""


class SimulatedStage(Document):
    """One stage, as it ran in the simulation."""

    start_s: float
    """When it began, in seconds from the start of the application."""
    end_s: float
    """When it ended."""
    models: tuple[StageModel, ...]
    """What ran in it."""
    until: StageEnd | None
    """As it was planned."""
    busy_gpu_s: float
    """GPU-seconds in which an engine stepped."""
    loading_gpu_s: float
    """GPU-seconds in which models were loaded."""


class ApplicationModel(Document):
    """A model, its work and its time."""

    name: str
    """The caller's name of the model."""
    model: str
    """Its id in the catalogue, or its name."""
    architecture: ModelSpecDocument
    """What it is, whatever becomes of the catalogue."""
    precision: PrecisionName
    """Of the weights."""
    kv_precision: PrecisionName
    """Of the KV cache."""
    requests: int
    """Requests as drawn, chunks of chains and those from other models counted."""
    input_tokens: int
    """Tokens of all prompts as drawn."""
    output_tokens: int
    """Tokens of all answers as drawn."""
    finish_s: float | None
    """When its last request is done; null without a plan."""
    load_s: dict[str, float]
    """Seconds until a replica serves, by its tensor-parallel size."""


class ComparedSchedule(Document):
    """What another strategy takes."""

    strategy: Strategy
    """Which strategy."""
    makespan_s: float
    """Seconds."""


class MachineChoice(Document):
    """A set of machines on the front of time against USD: of those that were planned, none is better in both."""

    machines: str
    """What is rented, in words."""
    gpu: str
    """Slug of the GPU."""
    gpus: int
    """GPUs in all."""
    makespan_s: float
    """Seconds from the order until all is done, start-up of the machines counted."""
    cost_usd: float
    """USD."""


class OfflineConflict(Document):
    """What has to give in an application without a plan."""

    constraint: str
    """gpus, disk, memory/<model>, budget, budget_per_hour, deadline, ..."""
    needed: float
    """What a plan would need."""
    available: float
    """What there is."""
    unit: str
    """Unit of both."""


class OfflineSolverReport(Document):
    """How the plan was found."""

    seconds: float
    """Seconds of the whole search."""
    evaluated_schedules: int
    """Schedules that were simulated."""
    hit_time_limit: bool
    """Whether `search.time_limit_s` cut the search short."""
    version: str
    """Version of sutler."""


class SeenSpeed(Document):
    """How fast a model was seen to be."""

    model: str
    """The caller's name of the model."""
    slowdown: float
    """How many times as long its steps take as the first plan had it."""


class StartedModel(Document):
    """How far a model is where an adjusted plan begins. Its requests are numbered from 0: item by item, and along the
    chain of each; its own first, then those of each edge, in their order."""

    model: str
    """The caller's name of the model."""
    finished: tuple[tuple[int, int], ...]
    """Requests that are done: the first and the last number of each run of them."""
    written: tuple[tuple[int, int], ...]
    """Requests under way: number, and tokens written so far."""
    replicas: tuple[PlacedReplica, ...]
    """What is up, or loads."""


class OfflineAdjustment(Document):
    """What an adjusted plan rests on: it plans the rest of an application that runs."""

    of: Annotated[UUID, Field(strict=False)]
    """`id` of the plan that was adjusted."""
    at_s: float
    """When its progress was looked at, in seconds from the start of the application."""
    progress: ProgressDocument
    """What was reported."""
    speeds: tuple[SeenSpeed, ...]
    """What follows from it."""
    unadjusted_makespan_s: float
    """When all would be done if the old plan went on, at these speeds."""
    start: tuple[StartedModel, ...] | None = None
    """Where the plan begins, as `progress` and the simulation have it, in the order of the application."""


class OfflinePlanDocument(Document):
    """A plan for an offline application: what was planned, and what the simulation makes of it."""

    schema_: Literal["sutler/offline-plan/v1"] = Field(alias="schema")
    """Version of this format."""
    id: Annotated[UUID, Field(strict=False)]
    """Identity of this plan."""
    revision: Annotated[int, Field(ge=1)] = 1
    """Counts the plans of one application: 1, and one more for each adjustment."""
    created_at: Timestamp
    """When the plan was made."""
    status: Literal["optimal", "feasible", "infeasible"]
    """Its bound is met; there is a plan and the gap says how far it may be from the best; nothing can be."""
    strategy: Strategy | None
    """What made the schedule; null without a plan."""
    objective: OfflineObjectiveResult
    """How good it is."""
    makespan_s: float | None
    """Seconds from the start of the application until all is done; null without a plan. That start is when rented
    machines are up, `application.rental.start_up_s` after their order."""
    cost_usd: float | None
    """USD for all rentals; null without rentals."""
    lower_bound: LowerBoundDocument | None
    """What no schedule beats on `hardware`, from the start of the application; null without a plan."""
    seed: int
    """Of the lengths that were drawn."""
    application: ApplicationDocument
    """What was asked, with the content of files in place of their paths."""
    hardware: PlannedHardware | None
    """What it runs on; null where nothing can be rented."""
    rentals: tuple[OfflineRental, ...]
    """What to rent; empty on GPUs at hand."""
    schedule: tuple[ScheduledStage, ...]
    """What was planned."""
    stages: tuple[SimulatedStage, ...]
    """What the simulation makes of it."""
    models: tuple[ApplicationModel, ...]
    """The models, in the order of the application."""
    compared: tuple[ComparedSchedule, ...]
    """What every other strategy that was tried takes."""
    frontier: tuple[MachineChoice, ...]
    """USD against time over the machines for rent; empty on GPUs at hand."""
    conflicts: tuple[OfflineConflict, ...]
    """Why there is no plan; empty where there is one."""
    solver: OfflineSolverReport
    """How the plan was found."""
    warnings: tuple[str, ...]
    """What to know before trusting it."""
    adjustment: OfflineAdjustment | None = None
    """Null for a plan from the start. Else `schedule` and `stages` are of the rest, times still from the start."""
