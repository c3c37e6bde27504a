"""Notes what a deployment costs from now on: by its plan, and by what is reported as rented.

Whoever calls has locked the deployment. `history` reads it.
"""

from typing import Final
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.repository import Deployment

# One clock tells the time, that of the store, when the deployment is already locked: what it cost has no gap.
_END: Final = """
    UPDATE cost SET ended_at = greatest(began_at, clock_timestamp())
    WHERE deployment_id = :deployment_id AND ended_at IS NULL
"""
_END_ALL: Final = text(_END)
_CHANGE: Final = text(f"""
    WITH ended AS ({_END} AND (plan_id IS NULL) = (CAST(:plan_id AS uuid) IS NULL) RETURNING ended_at)
    INSERT INTO cost (deployment_id, deployment_name, plan_id, began_at, usd_per_hour)
    SELECT :deployment_id, :name, :plan_id, coalesce((SELECT ended_at FROM ended), clock_timestamp()), told.usd
    FROM (SELECT CAST(:usd_per_hour AS float8) AS usd) told WHERE told.usd IS NOT NULL
""")


async def plan_holds(
    connection: AsyncConnection, deployment: Deployment, plan_id: UUID, usd_per_hour: float | None
) -> None:
    """From now on this plan says what the deployment costs; None: it serves nothing, so none does."""
    values = {"deployment_id": deployment.id, "name": deployment.name, "plan_id": plan_id}
    await connection.execute(_CHANGE, {**values, "usd_per_hour": usd_per_hour})


async def reported(connection: AsyncConnection, deployment: Deployment, usd_per_hour: float) -> None:
    """From now on so much is rented, until the next report."""
    values = {"deployment_id": deployment.id, "name": deployment.name, "plan_id": None}
    await connection.execute(_CHANGE, {**values, "usd_per_hour": usd_per_hour})


async def ends(connection: AsyncConnection, deployment: Deployment) -> None:
    """From now on it costs nothing."""
    await connection.execute(_END_ALL, {"deployment_id": deployment.id})
