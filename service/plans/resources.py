"""What the API says of plans that are being made, and of plans in lists."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.web.resource import Resource

UnfinishedStatus = Literal["queued", "running", "cancelled", "failed"]
PlanStatus = Literal[UnfinishedStatus, "optimal", "feasible", "infeasible", "unknown"]
PENDING: tuple[PlanStatus, ...] = ("queued", "running")
SERVES: frozenset[PlanStatus] = frozenset({"optimal", "feasible"})


class ProgressResource(Resource):
    """Where a running solve is."""

    phase: str
    """What it does now."""
    seconds: float
    """Since the solve began."""
    candidates: int | None
    """Configurations considered."""
    value: float | None
    """The best plan so far, in the objective's unit."""
    bound: float | None
    """Proven: no plan is better."""
    relative_gap: float | None
    """|bound - value| / |value|."""


class PlanJobResource(Resource):
    """A plan that is not there: it is waited for, was cancelled, or could not be made."""

    schema_: Literal["sutler/plan-job/v1"] = Field(default="sutler/plan-job/v1", alias="schema")
    """Tells it from a plan, whose schema is sutler/plan/v1."""
    id: UUID
    """Identity of the plan."""
    status: UnfinishedStatus
    """What became of it so far."""
    deployment: str | None
    """The deployment that it is for."""
    attempt: int
    """How often a worker has taken it up."""
    created_at: datetime
    """When it was asked for."""
    started_at: datetime | None
    """When a worker took it up last."""
    finished_at: datetime | None
    """When it was cancelled or failed."""
    progress: ProgressResource | None
    """Of the running solve."""
    problem: dict[str, Any] | None
    """Why it failed, as the problem that a waiting caller got."""
    url: str
    """Where the plan will be."""


class PlanSummary(Resource):
    """One line of a list of plans."""

    id: UUID
    """Identity of the plan."""
    status: PlanStatus
    """As in the plan, or queued, running, cancelled, failed."""
    deployment: str | None
    """The deployment that it is for."""
    revision: int | None
    """Counts the plans of the deployment."""
    objective: str
    """Kind of the objective."""
    value: float | None
    """In the objective's unit."""
    relative_gap: float | None
    """|bound - value| / |value|."""
    cost_usd_per_hour: float | None
    """USD per hour of all rentals."""
    created_at: datetime
    """When it was asked for."""
    finished_at: datetime | None
    """When it was there."""
    solve_seconds: float | None
    """Seconds of the solve."""
    reason: str | None
    """Why the deployment has it."""
    url: str
    """Where the plan is."""
