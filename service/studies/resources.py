"""What the API says of studies that are being made, and of studies in lists."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.plans.resources import ProgressResource, UnfinishedStatus
from sutler.service.web.resource import Resource

StudyKind = Literal["what-if", "comparison", "simulation"]
StudyStatus = UnfinishedStatus | Literal["done"]


class StudyJobResource(Resource):
    """A what-if, comparison or simulation that is not there: waited for, cancelled, or it could not be made."""

    schema_: Literal["sutler/study-job/v1"] = Field(default="sutler/study-job/v1", alias="schema")
    """Tells it from what was asked for."""
    id: UUID
    """Its identity."""
    kind: StudyKind
    """What was asked for."""
    status: UnfinishedStatus
    """What became of it so far."""
    attempt: int
    """How often a worker has taken it up."""
    created_at: datetime
    """When it was asked for."""
    started_at: datetime | None
    """When a worker took it up last."""
    finished_at: datetime | None
    """When it was cancelled or failed."""
    progress: ProgressResource | None
    """Of the solve that is running."""
    problem: dict[str, Any] | None
    """Why it failed, as the problem that a waiting caller got."""
    url: str
    """Where it will be."""


class StudySummary(Resource):
    """One line of a list."""

    id: UUID
    """Its identity."""
    kind: StudyKind
    """What was asked for."""
    status: StudyStatus
    """`done`, or queued, running, cancelled, failed."""
    created_at: datetime
    """When it was asked for."""
    finished_at: datetime | None
    """When it was there."""
    solve_seconds: float | None
    """Seconds that it took."""
    url: str
    """Where it is."""
