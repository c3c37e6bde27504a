"""Plans of problems in the store, alone or of a deployment; what all kinds of plans share is in plan_table.py."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import PlanRow
from sutler.service.db.queue import SOLVE
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem_parts import SolverDocument
from sutler.service.plans import claims
from sutler.service.plans.plan_table import PlanOrder, PlanTable, StoredPlan
from sutler.service.plans.resources import SERVES, PlanJobResource, PlanStatus, PlanSummary

_IS_PENDING: Final = claims.is_pending(PlanRow)


@dataclass(frozen=True, slots=True)
class PlanRecord(StoredPlan):
    """A plan of a problem in any state; `diff` was issued with it, `reason` says why a deployment has it."""

    noun = "plan"
    path = "/v1/plans"
    job = PlanJobResource
    summary = PlanSummary

    status: PlanStatus
    deployment_name: str | None
    revision: int | None
    progress: dict[str, Any] | None
    value: float | None
    cost_usd_per_hour: float | None
    reason: str | None
    diff: str | None

    @property
    def deployment(self) -> str | None:
        return self.deployment_name


@dataclass(frozen=True, slots=True)
class Order(PlanOrder):
    """A plan of a problem to be made."""

    problem: dict[str, Any]
    objective: str
    created_by: str
    request_id: str | None
    deployment_id: UUID | None = None
    deployment_name: str | None = None

    @property
    def time_limit_s(self) -> float:
        return float(self.problem.get("solver", {}).get("time_limit_s", SolverDocument().time_limit_s))


PLANS: Final = PlanTable(SOLVE, PlanRecord)


async def add_finished(
    connection: AsyncConnection,
    plan: PlanDocument,
    *,
    problem: dict[str, Any],
    created_by: str,
    deployment_id: UUID,
    deployment_name: str,
    now: datetime,
    reason: str,
    diff: str | None,
) -> None:
    """Adds a plan that nobody had to ask for. Raises IntegrityError where the deployment has one of that revision."""
    await connection.execute(
        insert(PlanRow).values(
            id=plan.id,
            deployment_id=deployment_id,
            deployment_name=deployment_name,
            revision=plan.revision,
            problem=problem,
            objective=plan.objective.kind,
            attempt=1,
            created_by=created_by,
            created_at=now,
            started_at=now,
            finished_at=now,
            market_read_at=now,
            reason=reason,
            diff=diff,
            **made(plan),
        )
    )


def made(plan: PlanDocument) -> dict[str, Any]:
    """The columns of a plan that is there that say what it is."""
    return {
        "status": plan.status,
        "document": plan.model_dump_json(by_alias=True),
        "value": plan.objective.value,
        "relative_gap": plan.objective.relative_gap,
        "cost_usd_per_hour": plan.cost_usd_per_hour,
        "solve_seconds": plan.solver.seconds,
    }


async def explain(
    connection: AsyncConnection, plan_id: UUID, *, problem: dict[str, Any], reason: str, diff: str | None
) -> None:
    """Stores why a deployment has this plan, what to do about the one before, and the traffic that it is for."""
    explained = update(PlanRow).where(PlanRow.id == plan_id)
    await connection.execute(explained.values(problem=problem, reason=reason, diff=diff))


async def find_revision(connection: AsyncConnection, deployment_id: UUID, revision: int) -> PlanRecord | None:
    return await PLANS.newest(connection, PlanRow.deployment_id == deployment_id, PlanRow.revision == revision)


async def serving_before(connection: AsyncConnection, deployment_id: UUID, revision: int) -> int | None:
    """The newest revision below this one that serves: the one that held until then."""
    earlier = (PlanRow.deployment_id == deployment_id, PlanRow.revision < revision, PlanRow.status.in_(SERVES))
    found: int | None = await connection.scalar(select(func.max(PlanRow.revision)).where(*earlier))
    return found


async def pending_of(connection: AsyncConnection, deployment_id: UUID) -> PlanRecord | None:
    """The newest plan of the deployment that is waited for."""
    return await PLANS.newest(connection, PlanRow.deployment_id == deployment_id, _IS_PENDING)


async def last_of(connection: AsyncConnection, deployment_id: UUID) -> PlanRecord | None:
    """The newest plan of the deployment in any state."""
    return await PLANS.newest(connection, PlanRow.deployment_id == deployment_id)


async def cancel_of(
    connection: AsyncConnection, deployment_id: UUID, now: datetime, *, failure: dict[str, Any]
) -> list[UUID]:
    """Cancels what is waited for of a deployment; returns which plans those were."""
    return await claims.cancel(connection, PlanRow, PlanRow.deployment_id == deployment_id, now, failure=failure)
