"""Offline plans in the store; who may make one is in service/plans/claims.py."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, Text, cast, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.offline_tables import OfflinePlanRow
from sutler.service.offline.questions import OfflineAnswer
from sutler.service.offline.resources import OfflinePlanStatus
from sutler.service.plans import claims
from sutler.service.plans.resources import PENDING


@dataclass(frozen=True, slots=True)
class OfflinePlanRecord:
    """A plan in any state; `document` is its JSON once it is there, `failure` the problem if it never will be."""

    id: UUID
    first_id: UUID
    parent_id: UUID | None
    revision: int
    status: OfflinePlanStatus
    name: str
    document: str | None
    failure: dict[str, Any] | None
    objective: str
    makespan_s: float | None
    cost_usd: float | None
    relative_gap: float | None
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    solve_seconds: float | None

    @property
    def is_pending(self) -> bool:
        return self.status in PENDING

    @property
    def url(self) -> str:
        return f"/v1/offline-plans/{self.id}"


@dataclass(frozen=True, slots=True)
class OfflineClaim:
    """A plan that a worker has taken up (turns.Claimed); `report` where it adjusts the plan `parent_id`."""

    id: UUID
    attempt: int
    deaths: int
    application: dict[str, Any]
    parent_id: UUID | None
    report: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class OfflineOrder:
    """A plan to be made."""

    id: UUID
    first_id: UUID
    parent_id: UUID | None
    revision: int
    name: str
    application: dict[str, Any]
    report: dict[str, Any] | None
    objective: str
    created_by: str
    request_id: str | None


_WHOLE: Final = tuple(getattr(OfflinePlanRow, name) for name in OfflinePlanRecord.__slots__)
_LISTED: Final = tuple(column for column in _WHOLE if column.key != "document")


async def add(connection: AsyncConnection, order: OfflineOrder, now: datetime) -> None:
    values = {name: getattr(order, name) for name in OfflineOrder.__slots__}
    await connection.execute(insert(OfflinePlanRow).values(created_at=now, **values))


async def find(connection: AsyncConnection, plan_id: UUID) -> OfflinePlanRecord | None:
    row = (await connection.execute(select(*_WHOLE).where(OfflinePlanRow.id == plan_id))).one_or_none()
    return None if row is None else _record(row)


async def application_of(connection: AsyncConnection, plan_id: UUID) -> str | None:
    """The application of a plan as JSON, as it was given."""
    return await connection.scalar(select(cast(OfflinePlanRow.application, Text)).where(OfflinePlanRow.id == plan_id))


async def parsed_application_of(connection: AsyncConnection, plan_id: UUID) -> dict[str, Any] | None:
    return await connection.scalar(select(OfflinePlanRow.application).where(OfflinePlanRow.id == plan_id))


async def document_of(connection: AsyncConnection, plan_id: UUID) -> str | None:
    """The plan itself; None where it is not there."""
    return await connection.scalar(select(OfflinePlanRow.document).where(OfflinePlanRow.id == plan_id))


async def page(
    connection: AsyncConnection,
    *,
    limit: int,
    before: tuple[datetime, UUID] | None = None,
    status: OfflinePlanStatus | None = None,
    name: str | None = None,
    first_id: UUID | None = None,
) -> list[OfflinePlanRecord]:
    """The newest first, without documents."""
    row = OfflinePlanRow
    wanted = select(*_LISTED).order_by(row.created_at.desc(), row.id.desc()).limit(limit)
    if before is not None:
        wanted = wanted.where(tuple_(row.created_at, row.id) < tuple_(*before))
    for column, value in ((row.status, status), (row.name, name), (row.first_id, first_id)):
        if value is not None:
            wanted = wanted.where(column == value)
    return [_record(found) for found in await connection.execute(wanted)]


async def cancel(connection: AsyncConnection, plan_id: UUID, now: datetime, *, failure: dict[str, Any]) -> bool:
    """Whether it was waited for, and is cancelled."""
    which = OfflinePlanRow.id == plan_id
    return bool(await claims.cancel(connection, OfflinePlanRow, which, now, failure=failure))


async def finish(
    connection: AsyncConnection,
    claimed: OfflineClaim,
    answer: OfflineAnswer,
    *,
    now: datetime,
    market_read_at: datetime | None,
) -> bool:
    """Stores the plan; False where it is no longer this worker's to make."""
    return await claims.end(
        connection,
        OfflinePlanRow,
        claimed,
        status=answer.status,
        document=answer.content,
        makespan_s=answer.makespan_s,
        cost_usd=answer.cost_usd,
        relative_gap=answer.relative_gap,
        solve_seconds=answer.solve_seconds,
        market_read_at=market_read_at,
        finished_at=now,
    )


def _record(row: Row[Any]) -> OfflinePlanRecord:
    values: dict[str, Any] = {name: row._mapping.get(name) for name in OfflinePlanRecord.__slots__}
    return OfflinePlanRecord(**values)
