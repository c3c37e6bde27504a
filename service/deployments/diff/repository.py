"""A deployment's plans as a diff needs them. SQL lives here only."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import PlanRow
from sutler.service.plans.resources import SERVES, PlanStatus


@dataclass(frozen=True, slots=True)
class Issued:
    """A plan of a deployment: its JSON, why it was issued, and the diff that was stored with it."""

    revision: int
    status: PlanStatus
    document: str
    reason: str | None
    diff: str | None


async def issued(connection: AsyncConnection, deployment_id: UUID, revision: int) -> Issued | None:
    columns = (PlanRow.revision, PlanRow.status, PlanRow.document, PlanRow.reason, PlanRow.diff)
    wanted = select(*columns).where(PlanRow.deployment_id == deployment_id, PlanRow.revision == revision)
    row: Any = (await connection.execute(wanted)).one_or_none()
    return None if row is None else Issued(*row)


async def serving_before(connection: AsyncConnection, deployment_id: UUID, revision: int) -> int | None:
    """The newest revision below this one that serves: the one that held until then."""
    earlier = (PlanRow.deployment_id == deployment_id, PlanRow.revision < revision, PlanRow.status.in_(SERVES))
    found: int | None = await connection.scalar(select(func.max(PlanRow.revision)).where(*earlier))
    return found
