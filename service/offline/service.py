"""Asking for offline plans and for adjusted ones: admitted, queued in one transaction, waited for, cancelled."""

import asyncio
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.notices import notify, plan_topic
from sutler.service.offline import repository
from sutler.service.offline.adjusting import check_progress
from sutler.service.offline.admission import admit
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.repository import OfflineOrder, OfflinePlanRecord
from sutler.service.plans import plan_requests
from sutler.service.web import idempotency
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.web.idempotency import Ticket
from sutler.service.web.principal import Principal
from sutler.service.web.state import Services


async def ask(
    services: Services,
    document: ApplicationDocument,
    *,
    principal: Principal,
    request_id: str,
    ticket: Ticket,
    is_async: bool,
) -> OfflinePlanRecord:
    """The plan that this request asks for, new or, where it was sent before, that one's.

    Raises what `admit` raises, KeyReusedError, StillRunningError, TooManyRequestsError, TooManyWaitingError,
    DatabaseError.
    """
    await asyncio.to_thread(admit, document, services.settings, now=services.now())
    order = await asyncio.to_thread(_first, document, created_by=principal.actor, request_id=request_id)
    return await _placed(services, order, principal=principal, ticket=ticket, is_async=is_async)


async def ask_adjusted(
    services: Services,
    plan_id: UUID,
    progress: ProgressDocument,
    *,
    principal: Principal,
    request_id: str,
    ticket: Ticket,
    is_async: bool,
) -> tuple[OfflinePlanRecord, ApplicationDocument]:
    """The plan of what is left of this one, as above, and the application that both are of.

    Raises NotFoundError, ConflictError for a plan that runs nothing, DocumentError for a report that does not fit it.
    """
    async with reading(services.engine) as connection:
        parent = await stored(connection, plan_id)
        application = await repository.parsed_application_of(connection, plan_id)
    if parent.document is None or parent.status == "infeasible":
        raise ConflictError(f"plan {plan_id} is {parent.status}: only a plan that runs something can be adjusted")
    plan = await asyncio.to_thread(OfflinePlanDocument.model_validate_json, parent.document)
    check_progress(plan, progress)
    order = OfflineOrder(
        uuid4(),
        first_id=parent.first_id,
        parent_id=parent.id,
        revision=parent.revision + 1,
        name=parent.name,
        application=application or {},
        report=progress.model_dump(mode="json", by_alias=True, exclude_unset=True),
        objective=parent.objective,
        created_by=principal.actor,
        request_id=request_id,
    )
    record = await _placed(services, order, principal=principal, ticket=ticket, is_async=is_async)
    return record, plan.application


def waits_s(document: ApplicationDocument) -> float:
    """How long a caller is kept waiting at most: the search, and a place in the queue."""
    return document.search.time_limit_s + plan_requests.QUEUE_PATIENCE_S


async def stored(connection: AsyncConnection, plan_id: UUID) -> OfflinePlanRecord:
    """Raises NotFoundError."""
    record = await repository.find(connection, plan_id)
    if record is None:
        raise NotFoundError(f"there is no offline plan {plan_id}: GET /v1/offline-plans lists all")
    return record


async def finished(services: Services, plan_id: UUID, *, wait_s: float) -> OfflinePlanRecord:
    """The plan, once it is no longer waited for, or as it is after `wait_s`. Raises NotFoundError, DatabaseError."""
    return await plan_requests.finished(services, plan_id, stored, wait_s=wait_s)


async def cancel(services: Services, plan_id: UUID, *, principal: Principal, request_id: str) -> OfflinePlanRecord:
    """Raises NotFoundError, and ConflictError where the plan is there already."""
    async with begun(services.engine) as connection:
        await services.count_change(connection, principal)
        failure = plan_requests.cancelled(f"cancelled by {principal.actor}")
        done = await repository.cancel(connection, plan_id, services.now(), failure=failure)
        record = await stored(connection, plan_id)
        if not done:
            raise ConflictError(f"plan {plan_id} is {record.status}: only a queued or running one can be cancelled")
        await notify(connection, plan_topic(plan_id))
        await _note(connection, record.id, "cancel", principal=principal, request_id=request_id)
    return record


async def _placed(
    services: Services, order: OfflineOrder, *, principal: Principal, ticket: Ticket, is_async: bool
) -> OfflinePlanRecord:
    async with begun(services.engine) as connection:
        earlier = await plan_requests.asked_before(connection, services, ticket, repository.find, is_async=is_async)
        if earlier is not None:
            return earlier
        await services.count_change(connection, principal)
        await plan_requests.check_room(connection, services)
        await repository.add(connection, order, services.now())
        await services.queue.plan_offline(connection, order.id)
        await idempotency.remember(connection, ticket, idempotency.for_plan(order.id, is_async=is_async))
        action = "create" if order.parent_id is None else "adjust"
        await _note(connection, order.id, action, principal=principal, request_id=order.request_id)
        return await stored(connection, order.id)


async def _note(
    connection: AsyncConnection, plan_id: UUID, action: str, *, principal: Principal, request_id: str | None
) -> None:
    target = f"offline-plan/{plan_id}"
    await audit.record(
        connection, principal=principal, action=f"offline_plan.{action}", target=target, request_id=request_id
    )


def _first(document: ApplicationDocument, *, created_by: str, request_id: str | None) -> OfflineOrder:
    """What the caller left out stays left out."""
    plan_id = uuid4()
    return OfflineOrder(
        plan_id,
        first_id=plan_id,
        parent_id=None,
        revision=1,
        name=document.name,
        application=document.model_dump(mode="json", by_alias=True, exclude_unset=True),
        report=None,
        objective=document.objective.kind,
        created_by=created_by,
        request_id=request_id,
    )
