"""What the API says of offline plans that are being made, and of offline plans in lists."""

from datetime import datetime
from typing import Any, Final, Literal, get_args
from uuid import UUID

from pydantic import Field

from sutler.service.plans.resources import UnfinishedStatus
from sutler.service.web.resource import Resource

FinishedStatus = Literal["optimal", "feasible", "infeasible"]
OfflinePlanStatus = UnfinishedStatus | FinishedStatus
OFFLINE_STATUSES: Final = (*get_args(UnfinishedStatus), *get_args(FinishedStatus))


class OfflinePlanJobResource(Resource):
    """An offline plan that is not there: it is waited for, was cancelled, or could not be made."""

    schema_: Literal["sutler/offline-plan-job/v1"] = Field(default="sutler/offline-plan-job/v1", alias="schema")
    """Tells it from a plan, whose schema is sutler/offline-plan/v1."""
    id: UUID
    """Identity of the plan."""
    status: UnfinishedStatus
    """What became of it so far."""
    name: str
    """Name of the application."""
    revision: int
    """Counts the plans of one application: 1, and one more for each adjustment."""
    parent_id: UUID | None
    """The plan that it adjusts; null for a plan from the start."""
    attempt: int
    """How often a worker has taken it up."""
    created_at: datetime
    """When it was asked for."""
    started_at: datetime | None
    """When a worker took it up last."""
    finished_at: datetime | None
    """When it was cancelled or failed."""
    problem: dict[str, Any] | None
    """Why it failed, as the problem that a waiting caller got."""
    url: str
    """Where the plan will be."""


class OfflinePlanSummary(Resource):
    """One line of a list of offline plans."""

    id: UUID
    """Identity of the plan."""
    status: OfflinePlanStatus
    """As in the plan, or queued, running, cancelled, failed."""
    name: str
    """Name of the application."""
    revision: int
    """Counts the plans of one application: 1, and one more for each adjustment."""
    parent_id: UUID | None
    """The plan that it adjusts; null for a plan from the start."""
    objective: str
    """Kind of the objective."""
    makespan_s: float | None
    """Seconds until all is done."""
    cost_usd: float | None
    """USD for all rentals."""
    relative_gap: float | None
    """|bound - value| / |value|."""
    created_at: datetime
    """When it was asked for."""
    finished_at: datetime | None
    """When it was there."""
    solve_seconds: float | None
    """Seconds of the search."""
    url: str
    """Where the plan is."""
