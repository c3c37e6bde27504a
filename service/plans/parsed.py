"""Plans as documents, remembered by this process: they never change, and parsing one takes some milliseconds."""

import asyncio
from collections import OrderedDict
from typing import Final
from uuid import UUID

from sutler.service.documents.plan import PlanDocument

MOST_REMEMBERED: Final = 100  # chosen: those that people look at; one takes some hundred kilobytes
_parsed: Final[OrderedDict[UUID, PlanDocument]] = OrderedDict()


async def parsed(plan_id: UUID, document: str) -> PlanDocument:
    """The document of the plan of this id; nobody changes it."""
    found = _parsed.get(plan_id)
    if found is None:
        found = _parsed[plan_id] = await asyncio.to_thread(PlanDocument.model_validate_json, document)
        if len(_parsed) > MOST_REMEMBERED:
            _parsed.popitem(last=False)
    else:
        _parsed.move_to_end(plan_id)
    return found
