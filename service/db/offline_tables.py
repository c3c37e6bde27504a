"""The table of plans of offline applications."""

from typing import Any
from uuid import UUID

from sqlalchemy import JSON, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from sutler.service.db.api_tables import AskedPlan
from sutler.service.db.tables import Base


class OfflinePlanRow(AskedPlan, Base):
    """A plan of an offline application.

    `parent_id` is the plan that it adjusts, `report` what was known by then, `first_id` the plan of revision 1, from
    which all of an application's plans follow.
    """

    __tablename__ = "offline_plan"

    first_id: Mapped[UUID] = mapped_column(ForeignKey("offline_plan.id"))
    parent_id: Mapped[UUID | None] = mapped_column(ForeignKey("offline_plan.id"))
    revision: Mapped[int]
    name: Mapped[str]
    application: Mapped[dict[str, Any]] = mapped_column(JSON)
    report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    makespan_s: Mapped[float | None]
    cost_usd: Mapped[float | None]


Index("ix_offline_plan_created_at", OfflinePlanRow.created_at.desc(), OfflinePlanRow.id.desc())
Index("ix_offline_plan_first_id", OfflinePlanRow.first_id, OfflinePlanRow.created_at)
Index("ix_offline_plan_status", OfflinePlanRow.status)
