"""Questions that pages ask as the API does: queued behind all plans, followed on the page, kept in the store."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import Request

from sutler.service.db.asynchronous import reading
from sutler.service.pages.route import Acting
from sutler.service.plans.plan_requests import Asker, PlanKind, ask, cancel, stored
from sutler.service.studies.repository import StudyRecord
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.web.idempotency import Ticket
from sutler.service.web.state import Services


@dataclass(frozen=True, slots=True)
class Study:
    """A question and, once it is there, its answer."""

    record: StudyRecord
    answer: Any

    @property
    def is_pending(self) -> bool:
        return self.record.is_pending


async def asked(
    request: Request, services: Services, kind: PlanKind[Any, Any], question: Any, acting: Acting, *, instead_of: str
) -> UUID:
    """Asks, and returns under which id the answer will be. `instead_of`: of a question that is given up for it."""
    ticket = Ticket(acting.caller.principal.actor, None, f"POST {request.url.path}", b"")
    found: UUID = (await ask(services, kind, question, Asker(acting.caller, ticket, is_async=True))).id
    earlier = id_of(instead_of)
    if earlier not in (None, found):
        with suppress(ConflictError, NotFoundError):  # it is answered, or gone
            await cancel(services, kind, earlier, caller=acting.caller)
    return found


async def study_of(services: Services, kind: PlanKind[Any, Any], study: str) -> Study | None:
    """The question of this id; None where none is named. Raises NotFoundError."""
    study_id = id_of(study)
    if study_id is None:
        return None
    async with reading(services.engine) as connection:
        record = await stored(connection, kind.table, study_id)
    answer = None if record.document is None else kind.plan.model_validate_json(record.document)
    return Study(record, answer)


def id_of(text: str) -> UUID | None:
    """An id, if it is one."""
    try:
        return UUID(text)
    except ValueError:
        return None
