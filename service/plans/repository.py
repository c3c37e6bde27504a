"""Plans in the store. A plan is finished once: by the worker that took it up last, while nobody has cancelled it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, Text, cast, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import PlanRow
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import claims
from sutler.service.plans.resources import PENDING, PlanStatus

_IS_PENDING: Final = claims.is_pending(PlanRow)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan in any state; `document` is its JSON once it is there, `failure` the problem if it never will be."""

    id: UUID
    status: PlanStatus
    deployment_name: str | None
    revision: int | None
    document: str | None
    failure: dict[str, Any] | None
    progress: dict[str, Any] | None
    objective: str
    value: float | None
    relative_gap: float | None
    cost_usd_per_hour: float | None
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    solve_seconds: float | None
    reason: str | None

    @property
    def is_pending(self) -> bool:
        return self.status in PENDING

    @property
    def url(self) -> str:
        return f"/v1/plans/{self.id}"


@dataclass(frozen=True, slots=True)
class Claim:
    """A plan that a worker has taken up; `attempt` is its right to finish it, `deaths` how many died of it before."""

    id: UUID
    attempt: int
    deaths: int
    problem: dict[str, Any]
    deployment_id: UUID | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Order:
    """A plan to be made."""

    id: UUID
    problem: dict[str, Any]
    objective: str
    created_by: str
    request_id: str | None
    deployment_id: UUID | None = None
    deployment_name: str | None = None


_WHOLE: Final = tuple(getattr(PlanRow, name) for name in PlanRecord.__slots__)
_LISTED: Final = tuple(column for column in _WHOLE if column.key not in {"document", "progress"})


async def add(connection: AsyncConnection, order: Order, now: datetime) -> None:
    values = {name: getattr(order, name) for name in Order.__slots__}
    await connection.execute(insert(PlanRow).values(created_at=now, **values))


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
    diff: str,
) -> None:
    """A plan that nobody had to ask for. Raises IntegrityError where the deployment has one of that revision."""
    await connection.execute(
        insert(PlanRow).values(
            id=plan.id,
            deployment_id=deployment_id,
            deployment_name=deployment_name,
            revision=plan.revision,
            status=plan.status,
            problem=problem,
            objective=plan.objective.kind,
            document=plan.model_dump_json(by_alias=True),
            value=plan.objective.value,
            relative_gap=plan.objective.relative_gap,
            cost_usd_per_hour=plan.cost_usd_per_hour,
            attempt=1,
            created_by=created_by,
            created_at=now,
            started_at=now,
            finished_at=now,
            market_read_at=now,
            solve_seconds=plan.solver.seconds,
            reason=reason,
            diff=diff,
        )
    )


async def explain(
    connection: AsyncConnection, plan_id: UUID, *, problem: dict[str, Any], reason: str, diff: str | None
) -> None:
    """Why a deployment has this plan, what is to be done about the one before, and the traffic that it is for."""
    explained = update(PlanRow).where(PlanRow.id == plan_id)
    await connection.execute(explained.values(problem=problem, reason=reason, diff=diff))


async def find(connection: AsyncConnection, plan_id: UUID) -> PlanRecord | None:
    found = await connection.execute(select(*_WHOLE).where(PlanRow.id == plan_id))
    return _record(found.one_or_none())


async def problem_of(connection: AsyncConnection, plan_id: UUID) -> str | None:
    """The problem of a plan as JSON, as it was given."""
    return await connection.scalar(select(cast(PlanRow.problem, Text)).where(PlanRow.id == plan_id))


async def find_revision(connection: AsyncConnection, deployment_id: UUID, revision: int) -> PlanRecord | None:
    wanted = (PlanRow.deployment_id == deployment_id, PlanRow.revision == revision)
    return _record((await connection.execute(select(*_WHOLE).where(*wanted))).one_or_none())


async def page(
    connection: AsyncConnection,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    status: PlanStatus | None = None,
    deployment_id: UUID | None = None,
    deployment_name: str | None = None,
) -> list[PlanRecord]:
    """The newest first, without documents."""
    wanted = select(*_LISTED).order_by(PlanRow.created_at.desc(), PlanRow.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(tuple_(PlanRow.created_at, PlanRow.id) < tuple_(*before))
    if status is not None:
        wanted = wanted.where(PlanRow.status == status)
    if deployment_id is not None:
        wanted = wanted.where(PlanRow.deployment_id == deployment_id)
    if deployment_name is not None:
        wanted = wanted.where(PlanRow.deployment_name == deployment_name)
    return [record for row in await connection.execute(wanted) if (record := _record(row)) is not None]


async def pending_of(connection: AsyncConnection, deployment_id: UUID) -> PlanRecord | None:
    """The newest plan of the deployment that is waited for."""
    wanted = select(*_WHOLE).where(PlanRow.deployment_id == deployment_id, _IS_PENDING)
    return _record((await connection.execute(wanted.order_by(PlanRow.created_at.desc()).limit(1))).one_or_none())


async def last_of(connection: AsyncConnection, deployment_id: UUID) -> PlanRecord | None:
    """The newest plan of the deployment in any state."""
    wanted = select(*_WHOLE).where(PlanRow.deployment_id == deployment_id)
    return _record((await connection.execute(wanted.order_by(PlanRow.created_at.desc()).limit(1))).one_or_none())


async def cancel(
    connection: AsyncConnection,
    now: datetime,
    *,
    failure: dict[str, Any],
    plan_id: UUID | None = None,
    deployment_id: UUID | None = None,
) -> list[UUID]:
    """Cancels what is waited for: this plan, or all of a deployment; returns which those were."""
    which = PlanRow.id == plan_id if plan_id is not None else PlanRow.deployment_id == deployment_id
    return await claims.cancel(connection, PlanRow, which, now, failure=failure)


async def finish(
    connection: AsyncConnection,
    claimed: Claim,
    plan: PlanDocument,
    *,
    content: str,
    now: datetime,
    market_read_at: datetime,
    revision: int | None,
) -> bool:
    """Stores the plan; False where it is no longer this worker's to make."""
    return await claims.end(
        connection,
        PlanRow,
        claimed,
        status=plan.status,
        document=content,
        revision=revision,
        value=plan.objective.value,
        relative_gap=plan.objective.relative_gap,
        cost_usd_per_hour=plan.cost_usd_per_hour,
        solve_seconds=plan.solver.seconds,
        market_read_at=market_read_at,
        finished_at=now,
    )


def _record(row: Row[Any] | None) -> PlanRecord | None:
    if row is None:
        return None
    values: dict[str, Any] = {name: row._mapping.get(name) for name in PlanRecord.__slots__}
    return PlanRecord(**values)
