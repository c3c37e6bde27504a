"""Offline plans in the store: a kind of plans, see service/plans/plan_table.py."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sutler.service.db.queue import PLAN_OFFLINE
from sutler.service.offline.resources import OfflinePlanJobResource, OfflinePlanSummary
from sutler.service.plans.plan_table import PlanOrder, PlanTable, StoredPlan


@dataclass(frozen=True, slots=True)
class OfflinePlanRecord(StoredPlan):
    """A plan of an application in any state; `first_id` is the plan of revision 1, `parent_id` what it adjusts."""

    noun = "offline plan"
    path = "/v1/offline-plans"
    job = OfflinePlanJobResource
    summary = OfflinePlanSummary

    first_id: UUID
    parent_id: UUID | None
    revision: int
    name: str
    makespan_s: float | None
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class OfflineOrder(PlanOrder):
    """A plan of an application to be made; `report` is what was known of it when the plan before was adjusted."""

    first_id: UUID
    parent_id: UUID | None
    revision: int
    name: str
    application: dict[str, Any]
    report: dict[str, Any] | None
    objective: str
    created_by: str
    request_id: str | None


OFFLINE_PLANS: Final = PlanTable(PLAN_OFFLINE, OfflinePlanRecord)
