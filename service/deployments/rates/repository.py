"""What engines told of how they fared, and what was learnt of it, in the store."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import ObservationRow, WatchRow
from sutler.service.deployments.rates.learning import Told

MOST_READ: Final = 2_000  # at a time, chosen: what 64 engines tell in some minutes; what is left is read next time


async def told_since(
    connection: AsyncConnection, deployment_id: UUID, *, models: Collection[str], since: datetime
) -> list[Told]:
    """What engines of these models have told of the time after that, the oldest first."""
    row = ObservationRow
    columns = (row.model, row.source, row.started_at, row.ended_at, row.buckets, row.operating)
    wanted = select(*columns).where(
        row.deployment_id == deployment_id,
        row.model.in_(sorted(models)),
        row.ended_at > since,
        row.operating.is_not(None),
    )
    rows = await connection.execute(wanted.order_by(row.ended_at).limit(MOST_READ))
    return [_told(*found) for found in rows]


def _told(
    model: str, source: str, started_at: datetime, ended_at: datetime, buckets: list[Any], operating: dict[str, Any]
) -> Told:
    return Told(
        model=model,
        source=source,
        replica=operating.get("replica"),
        started_at=started_at,
        ended_at=ended_at,
        sizes=tuple((inputs, outputs, requests) for inputs, outputs, requests in buckets if requests > 0),
        requests=operating["requests"],
        residence_s=operating["residence_s"],
        cached_fraction=operating["cached_fraction"],
    )


async def stored(connection: AsyncConnection, deployment_id: UUID) -> dict[str, Any]:
    """What was learnt, as it is kept; nothing of a deployment that is not watched yet."""
    found = await connection.scalar(select(WatchRow.learnt).where(WatchRow.deployment_id == deployment_id))
    return found or {}


async def keep(connection: AsyncConnection, deployment_id: UUID, learnt: dict[str, Any]) -> None:
    """Stores what was learnt."""
    await connection.execute(update(WatchRow).where(WatchRow.deployment_id == deployment_id).values(learnt=learnt))
