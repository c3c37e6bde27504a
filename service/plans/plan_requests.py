"""Asking for plans of any kind: admitted, queued in one transaction, waited for, cancelled, deleted.

PLAN (service.py), OFFLINE_PLAN (service/offline/service.py) and the kinds of service/studies/service.py are one
PlanKind each. Flow: plan_endpoints.py -> ask, finished, cancel, delete (here) -> PlanTable (plan_table.py), the
queue, the audit log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.notices import notify, plan_topic
from sutler.service.documents.fields import Document
from sutler.service.plans import claims, deletion, quotas
from sutler.service.plans.plan_table import PlanOrder, PlanTable, StoredPlan
from sutler.service.web import idempotency
from sutler.service.web.caller import LOCAL, Caller
from sutler.service.web.errors import (
    ConflictError,
    NotFoundError,
    StillRunningError,
    TooManyRequestsError,
    TooManyWaitingError,
)
from sutler.service.web.idempotency import Earlier, Ticket, ticket_of
from sutler.service.web.parameters import preferences_of
from sutler.service.web.problem import CANCELLED, ProblemDetail
from sutler.service.web.state import Services
from sutler.service.web.waiting import until

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=StoredPlan)

BUSY_S: Final = 5.0  # chosen: some plans are made meanwhile
QUICK_S: Final = 30.0  # the usual limit of a solve; what takes longer waits until those before it are made
QUEUE_PATIENCE_S: Final = 60.0  # chosen: a caller who waits is kept beyond the solve while others' solves come first


@dataclass(frozen=True, slots=True)
class PlanKind(Generic[D, R]):
    """One kind of plan. A `question` is what callers ask and the column `asked` keeps, a `plan` what they get.

    `check` raises what is wrong with a question; `order` makes what is stored of it, given who asks; `time_limit_s`
    is how long it may be searched for a plan. `resolve` puts what a question only names into it, before it is
    checked; `remembered` is the plan that answers a question already, if there is one.
    """

    table: PlanTable[R]
    question: type[D]
    asked: str
    plan: type[Document]
    check: Callable[[Services, D], Awaitable[None]]
    order: Callable[[D, Caller], PlanOrder]
    time_limit_s: Callable[[D], float]
    resolve: Callable[[Services, D], Awaitable[D]] | None = None
    remembered: Callable[[AsyncConnection, Any, datetime], Awaitable[R | None]] | None = None

    @property
    def noun(self) -> str:
        return self.table.record.noun

    @property
    def operation(self) -> str:
        """The noun in names of operations and in the audit log."""
        return self.noun.replace(" ", "_")

    def target(self, plan_id: UUID) -> str:
        """What the audit log calls a plan."""
        return f"{self.noun.replace(' ', '-')}/{plan_id}"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for a plan, in which request, and whether they would rather not wait for it."""

    caller: Caller
    ticket: Ticket
    is_async: bool


def asker_of(request: Request, caller: Caller) -> Asker:
    """Who sends this request. Raises BadParameterError for an Idempotency-Key that is no plain text."""
    is_async = preferences_of(request).respond_async
    return Asker(caller, ticket_of(request, caller), is_async)


async def ask(services: Services, kind: PlanKind[D, R], question: D, asker: Asker) -> R:
    """The plan that this request asks for, new or, where it was sent before, that one's.

    Raises what the kind's `check` raises, and what `placed` does.
    """
    if kind.resolve is not None:
        question = await kind.resolve(services, question)
    await kind.check(services, question)
    order = await asyncio.to_thread(kind.order, question, asker.caller)
    return await placed(services, kind, order, asker, action="create")


async def placed(services: Services, kind: PlanKind[Any, R], order: PlanOrder, asker: Asker, *, action: str) -> R:
    """The plan of this order or, where the request was sent before, that one's; `action` is for the audit log.

    Raises KeyReusedError, StillRunningError, TooManyRequestsError, TooManyWaitingError, DatabaseError.
    """
    async with begun(services.changes) as connection:
        earlier = await _asked_before(connection, services, kind.table, asker)
        if earlier is not None:
            return earlier
        await services.count_change(connection, asker.caller.principal)
        known = None if kind.remembered is None else await kind.remembered(connection, order, services.now())
        if known is not None:
            await idempotency.remember(connection, asker.ticket, Earlier(known.id, asker.is_async))
            return known
        await place(services, connection, kind.table, order, asker.caller)
        await idempotency.remember(connection, asker.ticket, Earlier(order.id, asker.is_async))
        await audit.note(connection, asker.caller, f"{kind.operation}.{action}", kind.target(order.id))
        return await stored(connection, kind.table, order.id)


async def place(
    services: Services, connection: AsyncConnection, table: PlanTable[R], order: PlanOrder, caller: Caller
) -> None:
    """Puts the plan into the queue, in the caller's transaction: behind the caller's own, but beside those of others,
    as many as the weight of the caller says at a time.

    Raises TooManyWaitingError, TooManyRequestsError for a key that would fill the queue alone, QuotaUsedUpError.
    """
    waiting, own = await claims.count_waiting(connection, caller.principal.actor)
    if waiting >= services.settings.most_waiting_plans:
        raise TooManyWaitingError(f"{waiting} plans are waiting already: try again later, or start more workers")
    if caller.principal != LOCAL and own >= max(1, services.settings.most_waiting_plans // 2):
        told = f"{own} plans of this key are waited for, half of what the queue takes: ask again when some are made"
        raise TooManyRequestsError(told, retry_after_s=BUSY_S)
    await quotas.check_stored(connection, caller.principal.project)
    await table.add(connection, order, services.now())
    is_quick = own == 0 and order.time_limit_s <= QUICK_S
    behind = own // caller.principal.weight
    project = caller.principal.project
    await services.queue.make_plan(
        connection, table.task, order.id, project=project, behind=behind, is_quick=is_quick
    )


async def stored(connection: AsyncConnection, table: PlanTable[R], plan_id: UUID) -> R:
    """The plan. Raises NotFoundError."""
    record = await table.find(connection, plan_id)
    if record is None:
        raise NotFoundError(f"there is no {table.record.noun} {plan_id}: GET {table.record.path} lists all")
    return record


async def finished(services: Services, table: PlanTable[R], plan_id: UUID, *, wait_s: float) -> R:
    """The plan, once it is no longer waited for, or as it is after `wait_s`. Raises NotFoundError, DatabaseError."""

    async def look() -> R | None:
        async with reading(services.engine) as connection:
            record = await stored(connection, table, plan_id)
        return None if record.is_pending else record

    found = await until(services.notices, plan_topic(plan_id), look, wait_s=wait_s)
    if found is not None:
        return found
    async with reading(services.engine) as connection:
        return await stored(connection, table, plan_id)


async def cancel(services: Services, kind: PlanKind[Any, R], plan_id: UUID, *, caller: Caller) -> R:
    """The cancelled plan. Raises NotFoundError, and ConflictError where the plan is there already."""
    async with services.changing(caller) as connection:
        failure = cancelled(f"cancelled by {caller.principal.actor}")
        done = await kind.table.cancel(connection, plan_id, services.now(), failure=failure)
        record = await stored(connection, kind.table, plan_id)
        if not done:
            raise ConflictError(f"plan {plan_id} is {record.status}: only a queued or running one can be cancelled")
        await notify(connection, plan_topic(plan_id))
        await audit.note(connection, caller, f"{kind.operation}.cancel", kind.target(plan_id))
    return record


async def delete(services: Services, kind: PlanKind[Any, R], plan_id: UUID, *, caller: Caller) -> None:
    """Deletes a plan, which frees its place among those that a project may keep.

    Raises NotFoundError, and ConflictError where it is being made or something that is kept refers to it.
    """
    async with services.changing(caller) as connection:
        await deletion.lock(connection, kind.table.row, plan_id)
        record = await stored(connection, kind.table, plan_id)
        hold = await deletion.deleted(connection, kind.table.row, plan_id)
        if hold is not None:
            why = hold.why.format(url=record.url, deployment=getattr(record, "deployment", None))
            raise ConflictError(f"{kind.noun} {plan_id} cannot be deleted: {why}")
        await audit.note(connection, caller, f"{kind.operation}.delete", kind.target(plan_id))


def cancelled(why: str) -> dict[str, Any]:
    """The failure that is kept with a cancelled plan."""
    return ProblemDetail(CANCELLED, why).document()


async def _asked_before(
    connection: AsyncConnection, services: Services, table: PlanTable[R], asker: Asker
) -> R | None:
    """What the same request asked for. Raises KeyReusedError, StillRunningError.

    A plan that failed or was cancelled is no answer to hold on to: the request is carried out anew.
    """
    earlier = await idempotency.taken(connection, asker.ticket, services.now())
    if earlier is None or earlier.plan_id is None:
        return None
    record = await table.find(connection, earlier.plan_id)
    if record is None or record.status in {"failed", "cancelled"}:
        return None
    if record.is_pending and not (asker.is_async and earlier.is_async):
        detail = f"the request with this Idempotency-Key is being carried out: follow {record.url}, or ask again"
        raise StillRunningError(detail, retry_after_s=1.0)
    return record
