"""What the endpoints work with, put together in service/main.py and kept by the application."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncEngine

from service.auth.authenticator import Authenticator
from service.db.notices import Notices
from service.deployments.current import CurrentPlans
from service.market.service import MarketService
from service.queue import Queue
from service.settings import ServiceSettings
from service.web.metrics import Metrics
from service.web.metrics_of_the_store import StoreMetricsCache


@dataclass(frozen=True, slots=True)
class Services:
    """`needs_key`: whether callers must show one; without, all are the local user."""

    engine: AsyncEngine
    queue: Queue
    notices: Notices
    market: MarketService
    settings: ServiceSettings
    authenticator: Authenticator
    current: CurrentPlans
    metrics: Metrics
    store_metrics: StoreMetricsCache
    needs_key: bool
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))


def services_of(request: Request) -> Services:
    """A dependency: the services of the application that serves this request."""
    return cast(Services, request.app.state.services)
