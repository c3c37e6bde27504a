"""The application: routers, middleware, error handlers, and what runs beside the requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from sutler.service.api import openapi
from sutler.service.api.health import router as health
from sutler.service.auth.endpoints import router as audit
from sutler.service.deployments.diff.endpoints import router as diffs
from sutler.service.deployments.endpoints import router as deployments
from sutler.service.deployments.holdings.endpoints import router as holdings
from sutler.service.deployments.replanning.endpoints import router as decisions
from sutler.service.deployments.traffic.endpoints import router as traffic
from sutler.service.market.endpoints import router as market
from sutler.service.offline.endpoints import router as offline_plans
from sutler.service.plans.endpoints import router as plans
from sutler.service.profiles.endpoints import router as profiles
from sutler.service.web import problems
from sutler.service.web.access_log import AccessLog
from sutler.service.web.guard import Guard
from sutler.service.web.request_id import RequestId
from sutler.service.web.state import Services
from sutler.service.webhooks.endpoints import router as webhooks
from sutler.solver.version import VERSION

Opened = Callable[[], AbstractAsyncContextManager[Services]]
ROUTERS = (
    *(plans, offline_plans, deployments, diffs, holdings, market, webhooks, audit, health, decisions, traffic),
    profiles,
)


def build_app(opened: Opened) -> FastAPI:
    """`opened` gives the services for as long as the application runs."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened() as services:
            app.state.services = services
            listening = asyncio.ensure_future(services.notices.run())
            try:
                yield
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    app = FastAPI(
        title="sutler",
        version=VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app)
    app.openapi = lambda: openapi.document_of(app)  # type: ignore[method-assign]
    return app


def wrapped(app: FastAPI) -> Any:
    """Puts the middleware around the application, the outermost last: what a server runs."""
    return RequestId(AccessLog(Guard(app, app), app))
