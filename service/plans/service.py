"""Asking for plans: admitted, queued in one transaction, waited for, cancelled."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.notices import notify, plan_topic
from sutler.service.documents.problem import ProblemDocument
from sutler.service.plans import plan_requests, repository
from sutler.service.plans.admission import admit
from sutler.service.plans.repository import Order, PlanRecord
from sutler.service.profiles.references import with_calibration
from sutler.service.web import idempotency
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.web.idempotency import Ticket
from sutler.service.web.principal import Principal
from sutler.service.web.state import Services


def order_of(document: ProblemDocument, *, created_by: str, request_id: str | None) -> Order:
    """A plan for this problem; what the caller left out stays left out."""
    problem: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Order(uuid4(), problem, document.objective.kind, created_by, request_id)


async def check(services: Services, document: ProblemDocument) -> None:
    """Raises DocumentError, UnknownNameError, NoMarketDataError."""
    async with reading(services.engine) as connection:
        known = await with_calibration(connection, document)
    await asyncio.to_thread(admit, known, services.settings, now=services.now())


async def place(services: Services, connection: AsyncConnection, order: Order) -> None:
    """Puts the plan into the queue, in the caller's transaction. Raises TooManyWaitingError."""
    await plan_requests.check_room(connection, services)
    await repository.add(connection, order, services.now())
    await services.queue.solve(connection, order.id)


async def ask(
    services: Services,
    document: ProblemDocument,
    *,
    principal: Principal,
    request_id: str,
    ticket: Ticket,
    is_async: bool,
) -> PlanRecord:
    """The plan that this request asks for, new or, where it was sent before, that one's.

    Raises what `check` raises, KeyReusedError, StillRunningError, TooManyRequestsError, TooManyWaitingError,
    DatabaseError.
    """
    await check(services, document)
    order = await asyncio.to_thread(order_of, document, created_by=principal.actor, request_id=request_id)
    async with begun(services.engine) as connection:
        earlier = await plan_requests.asked_before(connection, services, ticket, repository.find, is_async=is_async)
        if earlier is not None:
            return earlier
        await services.count_change(connection, principal)
        await place(services, connection, order)
        await idempotency.remember(connection, ticket, idempotency.for_plan(order.id, is_async=is_async))
        await audit.record(
            connection, principal=principal, action="plan.create", target=f"plan/{order.id}", request_id=request_id
        )
        return await stored(connection, order.id)


async def stored(connection: AsyncConnection, plan_id: UUID) -> PlanRecord:
    """Raises NotFoundError."""
    record = await repository.find(connection, plan_id)
    if record is None:
        raise NotFoundError(f"there is no plan {plan_id}: GET /v1/plans lists all")
    return record


async def finished(services: Services, plan_id: UUID, *, wait_s: float) -> PlanRecord:
    """The plan, once it is no longer waited for, or as it is after `wait_s`. Raises NotFoundError, DatabaseError."""
    return await plan_requests.finished(services, plan_id, stored, wait_s=wait_s)


async def cancel(services: Services, plan_id: UUID, *, principal: Principal, request_id: str) -> PlanRecord:
    """Raises NotFoundError, and ConflictError where the plan is there already."""
    async with begun(services.engine) as connection:
        await services.count_change(connection, principal)
        by = f"cancelled by {principal.actor}"
        done = await repository.cancel(
            connection, services.now(), plan_id=plan_id, failure=plan_requests.cancelled(by)
        )
        record = await stored(connection, plan_id)
        if not done:
            raise ConflictError(f"plan {plan_id} is {record.status}: only a queued or running one can be cancelled")
        await notify(connection, plan_topic(plan_id))
        await audit.record(
            connection, principal=principal, action="plan.cancel", target=f"plan/{plan_id}", request_id=request_id
        )
    return record


def for_deployment(order: Order, deployment_id: UUID, name: str) -> Order:
    """The order as one for a deployment."""
    return replace(order, deployment_id=deployment_id, deployment_name=name)


def waits_s(document: ProblemDocument) -> float:
    """How long a caller is kept waiting at most: the solve, and a place in the queue."""
    return document.solver.time_limit_s + plan_requests.QUEUE_PATIENCE_S
