"""Requests by quarters of an hour in the store, for as long as the same time of past weeks is compared."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import delete, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import TrafficQuarterRow
from sutler.service.deployments.traffic.season import QUARTER, quarter_of
from sutler.service.deployments.traffic.window import Observation

_COUNT: Final = text("""
    INSERT INTO traffic_quarter AS q (deployment_id, model, began_at, source, requests, told_s)
    VALUES (:deployment_id, :model, :began_at, :source, :requests, :told_s)
    ON CONFLICT (deployment_id, model, began_at, source)
    DO UPDATE SET requests = q.requests + excluded.requests, told_s = q.told_s + excluded.told_s
""")
# Sliding windows of one source tell of more than a quarter in it; of what one does not tell of, nothing came.
_RATES: Final = text("""
    SELECT model, began_at, sum(requests / greatest(told_s, :quarter_s)) AS rps FROM traffic_quarter
    WHERE deployment_id = :deployment_id AND model = ANY(CAST(:models AS text[]))
      AND began_at = ANY(CAST(:quarters AS timestamptz[]))
    GROUP BY model, began_at
""")


async def count(connection: AsyncConnection, deployment_id: UUID, observations: Iterable[Observation]) -> None:
    """Adds what was observed to its quarters."""
    sums: dict[tuple[str, datetime, str], dict[str, float]] = {}
    for one in observations:
        for began_at, told_s, share in _quarters(one):
            of_quarter = sums.setdefault((one.model, began_at, one.source), {"requests": 0.0, "told_s": 0.0})
            of_quarter["requests"] += one.requests * share
            of_quarter["told_s"] += told_s
    if not sums:
        return
    rows = [
        {"deployment_id": deployment_id, "model": model, "source": source, "began_at": began_at} | of_quarter
        for (model, began_at, source), of_quarter in sorted(sums.items())  # who locks in order locks nobody out
    ]
    await connection.execute(_COUNT, rows)


def _quarters(one: Observation) -> Iterator[tuple[datetime, float, float]]:
    """The quarters that it is of: since when, for how long, and with which share of its requests."""
    whole_s = (one.ended_at - one.started_at).total_seconds()
    began_at = quarter_of(one.started_at)
    while began_at < one.ended_at:
        until = began_at + QUARTER
        told_s = (min(until, one.ended_at) - max(began_at, one.started_at)).total_seconds()
        yield began_at, told_s, told_s / whole_s if whole_s else 1.0
        began_at = until


async def rates(
    connection: AsyncConnection, deployment_id: UUID, *, models: Collection[str], quarters: Collection[datetime]
) -> dict[str, dict[datetime, float]]:
    """Requests/s of all sources by model and quarter, of those that are known."""
    asked = {"deployment_id": deployment_id, "models": sorted(set(models)), "quarters": sorted(quarters)}
    found: dict[str, dict[datetime, float]] = defaultdict(dict)
    for row in await connection.execute(_RATES, {**asked, "quarter_s": QUARTER.total_seconds()}):
        found[row.model][row.began_at] = row.rps
    return found


async def forget_old(connection: AsyncConnection, before: datetime) -> None:
    """Removes quarters that began before that."""
    await connection.execute(delete(TrafficQuarterRow).where(TrafficQuarterRow.began_at < before))
