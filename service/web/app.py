"""The application: routers, middleware, error handlers, and what runs beside the requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service.auth.endpoints import router as audit
from service.deployments.diff_endpoints import router as diffs
from service.deployments.endpoints import router as deployments
from service.holdings.endpoints import router as holdings
from service.market.endpoints import router as market
from service.offline.endpoints import router as offline_plans
from service.plans.endpoints import router as plans
from service.profiles.endpoints import router as profiles
from service.replanning.endpoints import router as decisions
from service.traffic.endpoints import router as traffic
from service.traffic.feed_endpoints import router as feeds
from service.web import openapi, problems
from service.web.access_log import AccessLog
from service.web.guard import Guard
from service.web.health import router as health
from service.web.request_id import RequestId
from service.web.state import Services
from service.webhooks.endpoints import router as webhooks
from solver.version import VERSION

Opened = Callable[[], AbstractAsyncContextManager[Services]]
ROUTERS = (
    *(plans, offline_plans, deployments, diffs, holdings, market, webhooks, audit, health, decisions, traffic, feeds),
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
    """With the middleware around it, the outermost last: what a server runs."""
    return RequestId(AccessLog(Guard(app, app), app))
