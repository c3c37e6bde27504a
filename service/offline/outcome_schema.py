"""What simulating an offline plan again, or comparing strategies on an application, comes to.

Units: seconds, tokens; fractions lie in [0, 1]. Keys are only ever added, never changed or taken away.
"""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.fields import Document, Timestamp
from sutler.service.offline.plan_schema import LowerBoundDocument, PlannedHardware, SimulatedStage
from sutler.solver.offline.plan import Strategy


class GpuShares(Document):
    """What the GPUs do from the start of the application to its end; the three make 1."""

    busy_fraction: float
    """An engine steps on them."""
    loading_fraction: float
    """Models are loaded."""
    idle_fraction: float
    """Neither."""


class StageTimes(Document):
    """When a stage was planned, and when it was; the two may differ in what runs in them."""

    planned_start_s: float | None
    """Null: the plan has no such stage."""
    planned_end_s: float | None
    """Null: the plan has no such stage."""
    start_s: float | None
    """Null: there was no such stage."""
    end_s: float | None
    """Null: there was no such stage."""


class ModelTimes(Document):
    """A model as planned and as simulated."""

    model: str
    """The caller's name of the model."""
    slowdown: float
    """How many times as long its steps took as the plan had it."""
    requests: int
    """Requests in the simulation."""
    planned_output_tokens: int
    """Tokens of all answers that the plan was made with."""
    output_tokens: int
    """Tokens of all answers in the simulation."""
    planned_finish_s: float
    """When its last request is done by the plan."""
    finish_s: float
    """When it is done in the simulation."""


class OfflineSimulationDocument(Document):
    """The schedule of a plan, run with other lengths or at other speeds."""

    schema_: Literal["sutler/offline-simulation/v1"] = Field(alias="schema")
    """Version of this format."""
    plan_id: Annotated[UUID, Field(strict=False)]
    """Which plan."""
    application: str
    """Its name."""
    seed: int
    """Of the lengths that were drawn."""
    planned_seed: int
    """Of those that the plan was made with."""
    planned_makespan_s: float
    """Seconds until all is done by the plan."""
    makespan_s: float
    """Seconds until all is done in the simulation."""
    planned_shares: GpuShares
    """By the plan."""
    shares: GpuShares
    """In the simulation."""
    hardware: PlannedHardware
    """What it ran on."""
    times: tuple[StageTimes, ...]
    """Planned and simulated stages side by side."""
    stages: tuple[SimulatedStage, ...]
    """The stages as they ran."""
    models: tuple[ModelTimes, ...]
    """The models, in the order of the application."""


class SeededTimes(Document):
    """What a schedule takes when lengths are drawn anew."""

    seeds: tuple[int, ...]
    """Of the draws."""
    makespan_s: tuple[float, ...]
    """Seconds, for each of them."""
    ratio_to_sutler: float
    """Mean of this strategy's time over sutler's with the same lengths."""


class ComparedPlan(Document):
    """What one strategy makes of the application."""

    strategy: Strategy
    """Which strategy."""
    makespan_s: float
    """Seconds until all is done."""
    ratio_to_sutler: float
    """That over sutler's; above 1: sutler is faster."""
    shares: GpuShares
    """What its GPUs do."""
    loads: int
    """Replicas that were loaded."""
    seconds: float
    """Seconds of planning."""
    evaluated_schedules: int
    """Schedules that were simulated to find it."""
    hit_time_limit: bool
    """Whether `search.time_limit_s` cut its search short."""
    stages: tuple[SimulatedStage, ...]
    """The stages as they run."""
    finish_s: dict[str, float]
    """When each model is done, by its name, in the order of the application."""
    over_seeds: SeededTimes | None
    """Null unless it was asked for."""


class OfflineComparisonDocument(Document):
    """What every strategy makes of one application on the same hardware, with the same lengths."""

    schema_: Literal["sutler/offline-comparison/v1"] = Field(alias="schema")
    """Version of this format."""
    created_at: Timestamp
    """When it was made."""
    application: str
    """Its name."""
    seed: int
    """Of the lengths that the plans were made with."""
    hardware: PlannedHardware
    """What all ran on."""
    lower_bound: LowerBoundDocument
    """What no schedule beats."""
    strategies: tuple[ComparedPlan, ...]
    """sutler first."""
    warnings: tuple[str, ...]
    """What to know before trusting it."""
