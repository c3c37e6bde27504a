"""The application: routers, middleware, error handlers, the OpenAPI document, and what runs beside the requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from pydantic.json_schema import models_json_schema

from sutler.service.auth.endpoints import router as audit
from sutler.service.auth.key_endpoints import router as keys
from sutler.service.db.hanging import HangGuard
from sutler.service.deployments.diff.endpoints import router as diffs
from sutler.service.deployments.endpoints import router as deployments
from sutler.service.deployments.history.endpoints import router as history
from sutler.service.deployments.holdings.endpoints import router as holdings
from sutler.service.deployments.rates.endpoints import router as rates
from sutler.service.deployments.replanning.endpoints import router as decisions
from sutler.service.deployments.traffic.endpoints import router as traffic
from sutler.service.market.endpoints import router as market
from sutler.service.offline.endpoints import router as offline_plans
from sutler.service.operation.health import router as health
from sutler.service.pages.router import router as pages
from sutler.service.plans.endpoints import router as plans
from sutler.service.profiles.endpoints import router as profiles
from sutler.service.studies.endpoints import comparisons, simulations, what_ifs
from sutler.service.studies.estimating import router as estimates
from sutler.service.web import problems
from sutler.service.web.access_log import AccessLog
from sutler.service.web.bodies import described
from sutler.service.web.guard import Guard
from sutler.service.web.problems import ProblemDetails
from sutler.service.web.request_id import RequestId
from sutler.service.web.state import Services
from sutler.service.webhooks.endpoints import router as webhooks
from sutler.solver.version import VERSION

Opened = Callable[[], AbstractAsyncContextManager[Services]]
ROUTERS = (
    *(plans, offline_plans, deployments, diffs, holdings, rates, market, webhooks, audit, health, decisions, traffic),
    *(keys, profiles, what_ifs, comparisons, simulations, estimates, history, pages),
)
REFERENCE: Final = "#/components/schemas/{model}"
DESCRIPTION: Final = """Plans which GPUs to rent, how to deploy LLMs on them and where to route each workload.

Units are in the names: seconds, USD per hour, requests per second. Times are RFC 3339 in UTC. Errors are RFC 9457
problems. Lists are `{items, next}`: give `next` as `cursor` for the following page.
"""


def build_app(opened: Opened) -> FastAPI:
    """`opened` gives the services for as long as the application runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened() as services:
            app.state.services = services
            beside = {asyncio.ensure_future(each.run()) for each in (services.notices, services.part(HangGuard))}
            try:
                yield
            finally:
                for each in beside:
                    each.cancel()
                await asyncio.wait(beside)

    app = FastAPIOffline(  # /docs with assets of its own: no page of sutler loads anything from elsewhere
        title="sutler",
        version=VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]
    return app


def wrapped(app: FastAPI) -> Any:
    """Puts the middleware around the application, the outermost last: what a server runs."""
    return RequestId(AccessLog(Guard(app, app), app))


def document_of(app: FastAPI) -> dict[str, Any]:
    """The document, made once and kept."""
    if app.openapi_schema is None:
        app.openapi_schema = _made(app)
    return app.openapi_schema


def _made(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title="sutler", version=VERSION, description=DESCRIPTION, routes=app.routes)
    wanted = [*((kind, "validation") for kind in described), (ProblemDetails, "serialization")]
    _, bodies = models_json_schema(wanted, ref_template=REFERENCE)  # type: ignore[arg-type]
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in bodies["$defs"].items():
        schemas.setdefault(name, schema)
    for path in made["paths"].values():
        for operation in path.values():
            _without_own_errors(operation)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return made


def _without_own_errors(operation: dict[str, Any]) -> None:
    """FastAPI documents its own 422, which is a problem here like all others."""
    described_as = operation.get("responses", {}).get("422", {}).get("content", {})
    described_as.pop("application/json", None)
