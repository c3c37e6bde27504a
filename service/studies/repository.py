"""Studies in the store: three kinds of plans in one table, see service/plans/plan_table.py."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import StudyRow
from sutler.service.db.queue import STUDY
from sutler.service.db.tables import PollRow
from sutler.service.plans.plan_table import PlanOrder, PlanTable, StoredPlan
from sutler.service.studies.resources import StudyJobResource, StudyKind, StudySummary
from sutler.service.translation.market_source import STORE_MAX_AGE_S


@dataclass(frozen=True, slots=True)
class StudyRecord(StoredPlan):
    """A study in any state; each kind is one of the classes below."""

    noun = "study"
    path = "/v1/studies"
    job = StudyJobResource
    summary = StudySummary

    kind: StudyKind
    progress: dict[str, Any] | None


class WhatIfRecord(StudyRecord):
    noun, path = "what-if", "/v1/what-ifs"


class ComparisonRecord(StudyRecord):
    noun, path = "comparison", "/v1/comparisons"


class SimulationRecord(StudyRecord):
    noun, path = "simulation", "/v1/simulations"


@dataclass(frozen=True, slots=True)
class StudyOrder(PlanOrder):
    """A study to be made."""

    kind: StudyKind
    asked: dict[str, Any]
    digest: bytes
    objective: str
    created_by: str
    request_id: str | None


STUDIES: Final = PlanTable(STUDY, StudyRecord)
WHAT_IFS: Final = PlanTable(STUDY, WhatIfRecord, {"kind": "what-if"})
COMPARISONS: Final = PlanTable(STUDY, ComparisonRecord, {"kind": "comparison"})
SIMULATIONS: Final = PlanTable(STUDY, SimulationRecord, {"kind": "simulation"})


async def remembered(
    connection: AsyncConnection, table: PlanTable[Any], order: StudyOrder, now: datetime
) -> StudyRecord | None:
    """What answers the same question already: made since, and with the market as it is, or without the store's."""
    oldest = now - timedelta(seconds=STORE_MAX_AGE_S)
    polled_since = exists(select(PollRow.id).where(PollRow.at > StudyRow.market_read_at))
    still_true = or_(StudyRow.market_read_at.is_(None), (StudyRow.market_read_at > oldest) & ~polled_since)
    found: StudyRecord | None = await table.newest(
        connection, StudyRow.digest == order.digest, StudyRow.status == "done", still_true
    )
    return found


async def first_of(
    connection: AsyncConnection, table: PlanTable[Any], order: StudyOrder, since: datetime
) -> StudyRecord | None:
    """The first of the same question that was asked since then and not given up, else the newest."""
    same = (StudyRow.digest == order.digest, StudyRow.created_at >= since)
    ended = select(func.min(StudyRow.created_at)).where(*same, StudyRow.status.in_(("done", "queued", "running")))
    first = await connection.scalar(ended)
    found: StudyRecord | None = await table.newest(
        connection, *same, *(() if first is None else (StudyRow.created_at == first,))
    )
    return found
