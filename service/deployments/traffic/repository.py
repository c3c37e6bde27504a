"""Observations in the store; what is sent twice by one source is there once."""

import asyncio
import json
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import PlanRow
from sutler.service.db.watch_tables import ObservationRow
from sutler.service.deployments.repository import RETAINED
from sutler.service.deployments.traffic import season_repository
from sutler.service.deployments.traffic.window import Observation

KEPT: Final = timedelta(days=8)  # the longest time that is looked back over is a week

LOOKED_BACK: Final = timedelta(hours=2)  # longer than any observation and the gap after it

# Buckets as text: they are read off the event loop.
_RECENT: Final = text("""
    SELECT model, source, started_at, ended_at, requests, buckets::text FROM observation
    WHERE deployment_id = :deployment_id AND model = ANY(CAST(:models AS text[])) AND ended_at >= :since
    UNION ALL
    SELECT o.model, o.source, o.started_at, o.ended_at, o.requests, o.buckets::text
    FROM unnest(CAST(:models AS text[])) AS wanted (model) CROSS JOIN LATERAL (
        SELECT * FROM observation WHERE deployment_id = :deployment_id AND model = wanted.model
        ORDER BY ended_at DESC, started_at LIMIT 1) o
    WHERE o.ended_at < :since
""")
_NEWEST_LATENCIES: Final = text("""
    SELECT o.model, o.latencies FROM unnest(CAST(:models AS text[])) AS wanted (model) CROSS JOIN LATERAL (
        SELECT model, latencies FROM observation
        WHERE deployment_id = :deployment_id AND model = wanted.model AND ended_at >= :since
          AND latencies <> '{}'::jsonb
        ORDER BY ended_at DESC LIMIT 1) o
""")


async def is_known(connection: AsyncConnection, deployment_id: UUID, last: Observation, *, digest: bytes) -> bool:
    """Whether the document that ends with this observation was stored before; no other transaction stores it now."""
    key = int.from_bytes(digest[:8], signed=True)
    await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
    wanted = select(ObservationRow.id).where(
        ObservationRow.deployment_id == deployment_id,
        ObservationRow.model == last.model,
        ObservationRow.source == last.source,
        ObservationRow.ended_at == last.ended_at,
        ObservationRow.digest == digest,
    )
    return (await connection.scalar(wanted.limit(1))) is not None


async def add(
    connection: AsyncConnection,
    deployment_id: UUID,
    observations: Sequence[Observation],
    *,
    digest: bytes,
    now: datetime,
    latencies: dict[str, float] | None = None,
    operating: dict[str, Any] | None = None,
) -> float:
    """Stores what is new of them; returns how many requests that are."""
    rows: list[dict[str, Any]] = [
        {
            "deployment_id": deployment_id,
            "model": o.model,
            "source": o.source,
            "started_at": o.started_at,
            "ended_at": o.ended_at,
            "digest": digest,
            "requests": o.requests,
            "buckets": [list(bucket) for bucket in o.buckets],
            "latencies": latencies or {},
            "operating": operating,
            "received_at": now,
        }
        for o in observations
    ]
    new = insert(ObservationRow).values(rows).on_conflict_do_nothing()
    told = {(o.model, o.source, o.started_at): o for o in observations}
    key = (ObservationRow.model, ObservationRow.source, ObservationRow.started_at)
    added = [told[row.model, row.source, row.started_at] for row in await connection.execute(new.returning(*key))]
    await season_repository.count(connection, deployment_id, added)
    return float(sum(one.requests for one in added))


async def recent(
    connection: AsyncConnection, deployment_id: UUID, *, models: Collection[str], since: datetime
) -> list[Observation]:
    """What ended after `since`, of these models and all sources; the newest of a model that has none."""
    rows = (
        await connection.execute(
            _RECENT, {"deployment_id": deployment_id, "models": sorted(set(models)), "since": since}
        )
    ).all()
    return await asyncio.to_thread(_observations, rows)  # of which there may be many


async def last_end(
    connection: AsyncConnection, deployment_id: UUID, *, model: str, source: str, before: datetime
) -> datetime | None:
    """Returns until when a source had told that had begun to by that instant, within `LOOKED_BACK` of it."""
    wanted = select(func.max(ObservationRow.ended_at)).where(
        ObservationRow.deployment_id == deployment_id,
        ObservationRow.model == model,
        ObservationRow.source == source,
        ObservationRow.started_at.between(before - LOOKED_BACK, before),
    )
    found: datetime | None = await connection.scalar(wanted)
    return found


async def newest_latencies(
    connection: AsyncConnection, deployment_id: UUID, *, models: Collection[str], since: datetime
) -> dict[str, dict[str, float]]:
    """The latencies by model, of the newest of its observations since then that has any."""
    asked = {"deployment_id": deployment_id, "models": sorted(set(models)), "since": since}
    rows = await connection.execute(_NEWEST_LATENCIES, asked)
    return {row.model: row.latencies for row in rows}


def _observations(rows: Sequence[Any]) -> list[Observation]:
    return [
        Observation(model, source, started_at, ended_at, requests, tuple(map(tuple, json.loads(buckets))))
        for model, source, started_at, ended_at, requests, buckets in rows
    ]


async def planned_models(connection: AsyncConnection, plan_id: UUID) -> list[Any]:
    """The models of the problem that a plan was made for, as they are stored."""
    return await connection.scalar(select(PlanRow.problem["models"]).where(PlanRow.id == plan_id)) or []


async def forget_old(connection: AsyncConnection, before: datetime) -> None:
    """Removes what was received before that, unless the project's operator said how long it is kept."""
    gone = text(f"DELETE FROM observation WHERE received_at < :before AND deployment_id NOT IN ({RETAINED})")
    await connection.execute(gone, {"before": before, "kind": "observations"})
