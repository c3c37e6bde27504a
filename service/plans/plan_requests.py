"""What asking for any kind of plan has in common: room in the queue, requests that were sent before, waiting.

Used by the services of plans and of offline plans, in front of their repositories.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import reading
from sutler.service.db.notices import plan_topic
from sutler.service.plans import claims
from sutler.service.plans.resources import PlanStatus
from sutler.service.web import idempotency
from sutler.service.web.errors import StillRunningError, TooManyWaitingError
from sutler.service.web.idempotency import Ticket
from sutler.service.web.problem import CANCELLED, ProblemDetail
from sutler.service.web.state import Services
from sutler.service.web.waiting import until

QUEUE_PATIENCE_S: Final = 60.0


class Asked(Protocol):
    """A plan in any state; `document` is its JSON once it is there, `failure` the problem if it never will be."""

    @property
    def id(self) -> UUID: ...
    @property
    def status(self) -> PlanStatus: ...
    @property
    def document(self) -> str | None: ...
    @property
    def failure(self) -> dict[str, Any] | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def is_pending(self) -> bool: ...
    @property
    def url(self) -> str: ...


A = TypeVar("A", bound=Asked)


async def check_room(connection: AsyncConnection, services: Services) -> None:
    """Raises TooManyWaitingError."""
    waiting, most = await claims.count_waiting(connection), services.settings.most_waiting_plans
    if waiting >= most:
        raise TooManyWaitingError(f"{waiting} plans are waiting already: try again later, or start more workers")


async def asked_before(
    connection: AsyncConnection,
    services: Services,
    ticket: Ticket,
    find: Callable[[AsyncConnection, UUID], Awaitable[A | None]],
    *,
    is_async: bool,
) -> A | None:
    """What the same request asked for. Raises KeyReusedError, StillRunningError.

    A plan that failed or was cancelled is no answer to hold on to: the request is carried out anew.
    """
    earlier = await idempotency.taken(connection, ticket, services.now())
    if earlier is None or earlier.plan_id is None:
        return None
    record = await find(connection, earlier.plan_id)
    if record is None or record.status in {"failed", "cancelled"}:
        return None
    if record.is_pending and not (is_async and earlier.is_async):
        detail = f"the request with this Idempotency-Key is being carried out: follow {record.url}, or ask again"
        raise StillRunningError(detail, retry_after_s=1.0)
    return record


async def finished(
    services: Services,
    plan_id: UUID,
    stored: Callable[[AsyncConnection, UUID], Awaitable[A]],
    *,
    wait_s: float,
) -> A:
    """The plan, once it is no longer waited for, or as it is after `wait_s`. Raises what `stored` does."""

    async def look() -> A | None:
        async with reading(services.engine) as connection:
            record = await stored(connection, plan_id)
        return None if record.is_pending else record

    found = await until(services.notices, plan_topic(plan_id), look, wait_s=wait_s)
    if found is not None:
        return found
    async with reading(services.engine) as connection:
        return await stored(connection, plan_id)


def cancelled(why: str) -> dict[str, Any]:
    """The failure that is kept with a cancelled plan."""
    return ProblemDetail(CANCELLED, why).document()
