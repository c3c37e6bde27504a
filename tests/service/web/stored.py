"""Rows put into a store, and what its metrics then say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from prometheus_client.samples import Sample
from sqlalchemy import Engine, insert, text
from sqlalchemy.dialects.postgresql import Range
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.db.asynchronous import open_async_engine, reading
from sutler.service.db.tables import ProviderRow
from sutler.service.db.watch_tables import FeedRow, ObservationRow, WatchRow
from sutler.service.operation.metrics_of_the_store import StoreMetrics, gather
from sutler.service.web.metrics import Metrics
from tests.service.web.applications import samples

NOW: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)


@asynccontextmanager
async def opened(engine: Engine) -> AsyncIterator[AsyncEngine]:
    made = open_async_engine(engine)
    try:
        yield made
    finally:
        await made.dispose()


def gathered(engine: Engine, *, now: datetime = NOW) -> StoreMetrics:
    async def ask() -> StoreMetrics:
        async with opened(engine) as store, reading(store) as connection:
            return await gather(connection, now)

    return asyncio.run(ask())


def found(engine: Engine, *, now: datetime = NOW) -> list[Sample]:
    return samples(Metrics(), gathered(engine, now=now))


def put(engine: Engine, row: Any, *values: dict[str, Any]) -> None:
    with engine.begin() as connection:
        connection.execute(insert(row), list(values))


def a_plan(status: str = "optimal", **others: Any) -> dict[str, Any]:
    usual = {"id": uuid4(), "problem": {}, "objective": "min_cost", "created_by": "local", "status": status}
    return {**usual, "solve_seconds": None, "relative_gap": None, **others}


def put_watched(
    engine: Engine,
    name: str = "chat",
    *,
    cost: float | None = 1.0,
    holdings: list[dict[str, Any]] | None = None,
    load_multiple: float | None = 1.0,
) -> UUID:
    """A deployment with its current plan, and what is known of it."""
    plan = a_plan(cost_usd_per_hour=cost)
    deployment: dict[str, Any] = {"id": uuid4(), "name": name, "problem": {}, "policy": {}, "plan_id": plan["id"]}
    watch = {"deployment_id": deployment["id"], "holdings": holdings, "state": {"load_multiple": load_multiple}}
    put(engine, PlanRow, plan)
    put(engine, DeploymentRow, deployment)
    put(engine, WatchRow, watch)
    id_: UUID = deployment["id"]
    return id_


def put_fed(engine: Engine, deployment: UUID, *observations: dict[str, Any]) -> None:
    """Two engines of its model are read, and this is what they counted."""
    feed = {"deployment_id": deployment, "model": "chat", "kind": "vllm"}
    put(engine, FeedRow, *({**feed, "id": uuid4(), "url": f"http://10.0.0.{n}/metrics"} for n in (5, 6)))
    put(engine, ObservationRow, *({"deployment_id": deployment, **observation} for observation in observations))


def counted(requests: float, *, minutes_ago: float = 1.0, **latencies: float) -> dict[str, Any]:
    """What an engine counted in 15 seconds."""
    at = NOW - timedelta(minutes=minutes_ago)
    row = {"model": "chat", "started_at": at - timedelta(seconds=15), "ended_at": at, "digest": uuid4().bytes}
    return {**row, "requests": requests, "buckets": [], "latencies": latencies}


def a_poll(outcome: str, *, provider_id: int, minutes_ago: float) -> dict[str, Any]:
    at = NOW - timedelta(minutes=minutes_ago)
    counts = {"seconds": 1.0, "requests": 1, "kept": 0, "opened": 0, "closed": 0}
    documents: dict[str, Any] = {"rejected": {}, "not_available": {}, "flags": {}, "covered": []}
    own = {"id": uuid4(), "provider_id": provider_id, "at": at, "ended_at": at, "outcome": outcome, "detail": ""}
    return {**own, **counts, **documents}


def an_offer(offer_id: str, *, provider_id: int, contract: str, is_over: bool = False) -> dict[str, Any]:
    end = NOW - timedelta(minutes=5) if is_over else None
    return {
        "provider_id": provider_id,
        "valid": Range(NOW - timedelta(hours=1), end, bounds="[)"),
        "state": b"",
        "offer_id": offer_id,
        "contract": contract,
        "feed": "main",
        "gpu": "h100-sxm",
        "gpus": 1,
        "available": 1,
        "availability_basis": "count",
        "price_usd_per_hour": 2.0,
        "divisible": False,
        "disk_included_gb": 0.0,
        "disk_usd_per_gb_month": 0.0,
    }


def put_providers(engine: Engine, *names: str) -> dict[str, int]:
    put(engine, ProviderRow, *({"name": name} for name in names))
    with engine.connect() as connection:
        return {row.name: row.id for row in connection.execute(text("SELECT id, name FROM provider"))}


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
