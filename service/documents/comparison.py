"""The comparison document: what every planning strategy makes of one problem, with the same rates, beside sutler.

Units: requests/s, seconds, USD per hour, watts (TDP or cap). Keys are only ever added, never changed or taken away.
"""

from typing import Literal

from pydantic import Field

from sutler.service.documents.fields import Document, Timestamp
from sutler.service.documents.plan import ConflictDocument, MarketUsed, ObjectiveResult

ObjectiveUnit = Literal["rps", "seconds", "usd_per_hour", "watts"]
FamilyName = Literal["sutler", "homogeneous", "ablation", "aggregated", "disaggregated", "greedy", "hedged"]
ComparedStatus = Literal["optimal", "feasible", "infeasible", "unknown", "not_applicable", "rejected"]
Swept = Literal["budget_usd_per_hour", "rate_rps"]


class ComparedStrategy(Document):
    """One strategy and the plan that it made."""

    name: str
    """What `--only` calls it."""
    title: str
    """What it does, in a few words."""
    family: FamilyName
    """What kind of strategy it is."""
    source: str
    """Paper and section that it is from."""
    own_market: bool
    """Whether it plans on supply that the market does not have, so that nobody could carry its plan out."""
    allowed_beyond: tuple[str, ...] = ()
    """Settings that would let sutler do all that the strategy may do, such as `search.disaggregation: auto`; empty
    where the problem lets it already. A strategy that is allowed more may be better than sutler."""
    status: ComparedStatus
    """As in a plan; `not_applicable`: it has nothing to say to such a problem; `rejected`: its plan failed
    verification."""
    reason: str | None
    """Why it has no plan; null where it has one."""
    objective: ObjectiveResult | None
    """How good its plan is; the bound is about plans of this strategy. Null where it is not applicable."""
    ratio_to_sutler: float | None
    """How many times better sutler is, whichever way the objective goes: above 1, sutler is better; null where one of
    the two has no plan."""
    throughput_rps: float | None
    """Requests/s of all models."""
    makespan_s: float | None
    """Seconds; min_makespan only."""
    load_multiple: float | None
    """Largest multiple of the given load that the fleet carries."""
    cost_usd_per_hour: float | None
    """USD per hour of all rentals."""
    power_watts: float | None
    """What all rented GPUs may draw: their TDP, or their caps."""
    usd_per_million_tokens: float | None
    """Input and output tokens together."""
    gpus: dict[str, int]
    """How many GPUs it rents, by slug."""
    replicas: int
    """How many replicas run on them."""
    seconds: float
    """How long it took."""
    conflicts: tuple[ConflictDocument, ...]
    """What has to give where it finds the problem infeasible."""
    violations: tuple[str, ...]
    """What is wrong with its plan, recomputed without the solver; anything here is a defect of sutler."""


class FrontierPoint(Document):
    """What a strategy makes of the problem at one budget or load."""

    at: float
    """The budget, USD per hour, or the requests/s of all models."""
    status: ComparedStatus
    """As of a compared strategy."""
    value: float | None
    """In the objective's unit; null without a plan."""
    throughput_rps: float | None
    """Requests/s of all models."""
    cost_usd_per_hour: float | None
    """USD per hour of all rentals."""
    power_watts: float | None
    """What all rented GPUs may draw: their TDP, or their caps."""
    on_frontier: bool
    """Whether no strategy on the market as it is, at any point, serves as much for less (USD per hour, or watts under
    min_power) or more for as little; differences below 0.1 % do not count."""
    seconds: float
    """How long it took."""


class FrontierCurve(Document):
    """One strategy over all budgets or loads."""

    name: str
    """Name of the strategy."""
    own_market: bool
    """Whether it plans on supply that the market does not have."""
    points: tuple[FrontierPoint, ...]
    """In ascending order of `at`."""


class FrontierDocument(Document):
    """Throughput against cost: every strategy at several budgets, or, where the load is given, at several loads."""

    swept: Swept
    """What changes from point to point; all else is as in the problem."""
    curves: tuple[FrontierCurve, ...]
    """One per strategy that is applicable."""


class ComparisonDocument(Document):
    """All strategies on one problem, sutler first, planned with the same rates, market and limits."""

    schema_: Literal["sutler/comparison/v1"] = Field(alias="schema")
    """Version of this format."""
    created_at: Timestamp
    """When they were compared."""
    objective: Literal["max_throughput", "min_makespan", "min_cost", "min_power"]
    """What all of them seek."""
    unit: ObjectiveUnit
    """Unit of the objective's values: rps, seconds, usd_per_hour or watts."""
    budget_usd_per_hour: float | None
    """What may be spent; null: any amount."""
    strategies: tuple[ComparedStrategy, ...]
    """Sutler, then its rivals."""
    best_rival: str | None
    """The best of those that plan on the market as it is and not just as sutler does; null where none has a plan."""
    market: MarketUsed
    """The market that all but those with their own plan on."""
    frontier: FrontierDocument | None = None
    """The sweep of `--pareto`; null where none was asked for, or there is nothing to sweep around."""
    version: str
    """Version of sutler."""
    notes: tuple[str, ...]
    """How the input was read."""
