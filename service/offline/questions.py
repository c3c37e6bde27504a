"""What a solver process is asked about offline applications, and who answers.

Flow: offline_job.py -> solver process -> answered (here) -> planning.py, adjusting.py. The answer is the plan as
callers get it: a plan may have megabytes, and a worker's event loop is no place to write them.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sutler.service.offline.adjusting import adjusted
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import OfflineMarket
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.planning import planned
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.resources import FinishedStatus
from sutler.service.offline.translate import translate


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The best plan on the hardware of a document, or on what is best rented of `market`."""

    document: ApplicationDocument
    market: OfflineMarket | None
    plan_id: UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AdjustQuestion:
    """The best plan of what is left of another, whose document is `before`."""

    before: str
    progress: ProgressDocument
    plan_id: UUID
    created_at: datetime


@dataclass(frozen=True, slots=True)
class OfflineAnswer:
    """A plan as JSON, and what lists say of it, by the names of the table's columns (OfflinePlanRow)."""

    document: str
    status: FinishedStatus
    makespan_s: float | None
    cost_usd: float | None
    relative_gap: float | None
    solve_seconds: float


OfflineQuestion = PlanQuestion | AdjustQuestion


def answered(question: OfflineQuestion) -> OfflineAnswer:
    """Raises DocumentError, InvalidProblemError."""
    plan_id, created_at = question.plan_id, question.created_at
    if isinstance(question, AdjustQuestion):
        before = OfflinePlanDocument.model_validate_json(question.before)
        plan = adjusted(before, question.progress, plan_id=plan_id, created_at=created_at)
    else:
        translation = translate(question.document, folder=None)
        plan = planned(translation, market=question.market, plan_id=plan_id, created_at=created_at)
    return OfflineAnswer(
        document=plan.model_dump_json(by_alias=True),
        status=plan.status,
        makespan_s=plan.makespan_s,
        cost_usd=plan.cost_usd,
        relative_gap=plan.objective.relative_gap,
        solve_seconds=plan.solver.seconds,
    )
