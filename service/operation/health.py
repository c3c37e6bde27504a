"""`/healthz`, `/readyz`, `/metrics`: for orchestrators and Prometheus.

Alive means that this process answers. Ready means that it can plan: the database answers, some cloud's market is
fresh, a worker is at work, losses are looked at, and there is room to store what comes of it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from shutil import disk_usage
from typing import Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import text

from sutler.service.auth.dependency import Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.db.errors import DatabaseError
from sutler.service.db.projects import across
from sutler.service.db.queue import URGENT_LOOKS
from sutler.service.operation.metrics_of_the_store import StoreMetricsCache
from sutler.service.settings import store_settings
from sutler.service.translation.market_source import STORE_MAX_AGE_S
from sutler.service.web.problems import responses
from sutler.service.web.resource import Resource
from sutler.service.web.state import ForAnyone, Services
from sutler.service.webhooks import repository as webhooks
from sutler.service.webhooks.sealing import Sealer, unknown_key

router = APIRouter(tags=["operation"])
PATIENCE_S: Final = 2.0  # chosen: orchestrators give probes a few seconds at most
LATE_S: Final = 60.0  # chosen: a loss is looked at within seconds, unless workers cannot keep up
LEAST_ROOM_BYTES: Final = 200_000_000  # chosen: below, PostgreSQL may find no room for its log within the hour

_FRESH: Final = text("""
    SELECT max(ended_at) >= now() - :max_age_s * interval '1 second' FROM poll WHERE outcome IN ('ok', 'partial')
    AND at >= now() - :max_age_s * interval '1 second'
""")
_WORKERS: Final = text(
    "SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat >= now() - :silent_s * interval '1 second'"
)

_LATE: Final = text(f"""
    SELECT count(*) FROM procrastinate_jobs j JOIN procrastinate_events e ON e.job_id = j.id AND e.type = 'deferred'
    WHERE j.queue_name = '{URGENT_LOOKS}' AND j.status = 'todo' AND e.at < now() - :late_s * interval '1 second'
""")


class Health(Resource):
    """This process answers."""

    status: Literal["ok"] = "ok"
    """Always."""


class Check(Resource):
    """One thing that planning needs."""

    name: Literal["database", "market", "worker", "losses", "secrets", "room"]
    """What is looked at."""
    ok: bool
    """Whether it is as it should be."""
    detail: str
    """What was found, and what to do."""


class Readiness(Resource):
    """Whether this service can plan now."""

    status: Literal["ready", "not_ready"]
    """Ready when all checks are."""
    checks: list[Check]
    """One by one."""


@router.get("/healthz")
async def healthz() -> Health:
    """Whether this process answers at all."""
    return Health()


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness, "description": "Not ready."}})
async def readyz(services: ForAnyone) -> JSONResponse:
    """Whether plans on the store's market can be made: database, fresh market, a worker."""
    checks = await readiness(services)
    is_ready = all(check.ok for check in checks)
    found = Readiness(status="ready" if is_ready else "not_ready", checks=checks)
    return JSONResponse(found.model_dump(mode="json"), 200 if is_ready else 503)


async def readiness(services: Services) -> list[Check]:
    """One by one, what planning needs."""
    silent_s = services.settings.worker_silent_s
    try:
        async with asyncio.timeout(PATIENCE_S), reading(across(services.engine)) as connection:
            fresh = bool(await connection.scalar(_FRESH, {"max_age_s": STORE_MAX_AGE_S}))
            workers = await connection.scalar(_WORKERS, {"silent_s": silent_s}) or 0
            late = await connection.scalar(_LATE, {"late_s": LATE_S}) or 0
            keys_in_use = await webhooks.keys_in_use(connection)
    except (DatabaseError, TimeoutError):
        return [Check(name="database", ok=False, detail="does not answer: see the log")]
    stale = f"no cloud answered in the last {STORE_MAX_AGE_S:g} s: GET /v1/providers says why"
    missing = "no worker is at work: start `sutler serve --role worker`"
    behind = (
        f"{late} deployments that lost machines or fall short have waited for over {LATE_S:g} s: start more workers"
    )
    return [
        Check(name="database", ok=True, detail="answers"),
        Check(name="market", ok=fresh, detail="is fresh" if fresh else stale),
        Check(name="worker", ok=workers > 0, detail="at work" if workers else missing),
        Check(name="losses", ok=not late, detail=behind if late else "none waits"),
        *secrets(Sealer(services.settings.secrets_keys), keys_in_use),
        *room(),
    ]


def secrets(sealer: Sealer, keys_in_use: Sequence[str]) -> Iterator[Check]:
    """Of webhooks, where some are encrypted: whether this process has the keys, as workers have to."""
    unknown = [key_id for key_id in keys_in_use if not sealer.knows(key_id)]
    if keys_in_use:
        detail = str(unknown_key(unknown[0])) if unknown else "are encrypted with keys that are here"
        yield Check(name="secrets", ok=not unknown, detail=detail)


def room() -> Iterator[Check]:
    """Of a private database; what another server has is not known here."""
    settings = store_settings()
    if settings.database_url is None:
        free = disk_usage(settings.data_dir).free
        full = f"{free / 1e6:.0f} MB are free in SUTLER_DATA_DIR: make room, or `sutler db prune`"
        is_enough = free >= LEAST_ROOM_BYTES
        yield Check(name="room", ok=is_enough, detail="there is some" if is_enough else full)


@router.get(
    "/metrics",
    response_model=None,
    responses={
        200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **responses(401, 403, 429),
    },
)
async def metrics(request: Request, services: Service, _reader: Reader) -> Response:
    """Metrics of this process, of the market and the queue, and of what the caller's project has."""
    gathered = await services.part(StoreMetricsCache).get(services.engine, request.state.principal.project)
    content, media_type = services.metrics.text(gathered, accept=request.headers.get("accept"))
    return Response(content, headers={"Content-Type": media_type})
