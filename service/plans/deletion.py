"""What keeps a plan of any kind from being deleted, by whoever asks and by age alike.

Used by plan_requests.py for one plan, and by service/workers/retention.py for all that are old.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import delete, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import OfflinePlanRow, PlanRow, StudyRow
from sutler.service.plans.claims import Table


@dataclass(frozen=True, slots=True)
class Hold:
    """A condition of a row `p`, in SQL, under which it stays; `why`, with what its owner can do."""

    condition: str
    why: str


_IS_MADE: Final = Hold("p.status IN ('queued', 'running')", "it is being made: cancel it first (POST {url}/cancel)")
# The plan that holds, the one that held before, from which its diff leads, and what came since; and the last attempt.
_STANDS: Final = Hold(
    """EXISTS (
        SELECT FROM deployment d LEFT JOIN plan held ON held.id = d.plan_id WHERE d.id = p.deployment_id AND (
            p.revision >= coalesce((
                SELECT max(b.revision) FROM plan b WHERE b.deployment_id = d.id AND b.revision < held.revision
                AND b.status IN ('optimal', 'feasible')), held.revision)
            OR p.created_at >= (SELECT max(last.created_at) FROM plan last WHERE last.deployment_id = d.id))
    )""",
    "deployment {deployment} stands on it: it can go when two newer plans have held, or the deployment is deleted",
)
# OFFSET 0: looked up for each plan, not read whole for many.
_IS_SIMULATED: Final = Hold(
    "EXISTS (SELECT FROM study s WHERE s.kind = 'simulation' AND s.asked -> 'plan' ->> 'id' = p.id::text OFFSET 0)",
    "simulations of it are kept: delete them first (GET /v1/simulations lists all, DELETE /v1/simulations/ID)",
)
_IS_ADJUSTED: Final = Hold(
    "EXISTS (SELECT FROM offline_plan later WHERE later.parent_id = p.id)",
    "a later revision adjusts it: delete that first (GET {url}/revisions lists all)",
)
HOLDS: Final[Mapping[Table, tuple[Hold, ...]]] = {
    PlanRow: (_IS_MADE, _STANDS, _IS_SIMULATED),
    OfflinePlanRow: (_IS_MADE, _IS_ADJUSTED),
    StudyRow: (_IS_MADE,),
}


async def lock(connection: AsyncConnection, table: Table, plan_id: UUID) -> None:
    """Until the end of the transaction nobody else changes or deletes the plan, if it is there."""
    await connection.execute(select(table.id).where(table.id == plan_id).with_for_update())


async def deleted(connection: AsyncConnection, table: Table, plan_id: UUID) -> Hold | None:
    """Deletes a plan, which is there and locked; where something keeps it, says what, and deletes nothing."""
    holds = HOLDS[table]
    conditions = ", ".join(hold.condition for hold in holds)
    asked = text(f"SELECT {conditions} FROM {table.__tablename__} p WHERE p.id = :id")
    held = (await connection.execute(asked, {"id": plan_id})).one()
    for hold, applies in zip(holds, held, strict=True):
        if applies:
            return hold
    await connection.execute(delete(table).where(table.id == plan_id))
    return None
