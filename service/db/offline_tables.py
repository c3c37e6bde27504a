"""The table of plans of offline applications."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, ForeignKey, Index, Integer, Uuid, func, text
from sqlalchemy.orm import Mapped, mapped_column

from sutler.service.db.tables import Base

NOW = func.now()


class OfflinePlanRow(Base):
    """A plan of an offline application that was asked for, from the moment it was asked for.

    `status`, `document`, `attempt` and `deaths` are as in PlanRow. `parent_id` is the plan that it adjusts, `report`
    what was known by then, `first_id` the plan of revision 1, from which all of an application's plans follow.
    """

    __tablename__ = "offline_plan"

    id: Mapped[UUID] = mapped_column(Uuid, primary_key=True)
    first_id: Mapped[UUID] = mapped_column(Uuid, ForeignKey("offline_plan.id"))
    parent_id: Mapped[UUID | None] = mapped_column(Uuid, ForeignKey("offline_plan.id"))
    revision: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(server_default=text("'queued'"))
    name: Mapped[str]
    application: Mapped[dict[str, Any]] = mapped_column(JSON)
    report: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    objective: Mapped[str]
    document: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None]
    progress: Mapped[dict[str, Any] | None]
    makespan_s: Mapped[float | None]
    relative_gap: Mapped[float | None]
    cost_usd: Mapped[float | None]
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    deaths: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    created_by: Mapped[str]
    request_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    market_read_at: Mapped[datetime | None]
    solve_seconds: Mapped[float | None]


Index("ix_offline_plan_created_at", OfflinePlanRow.created_at.desc(), OfflinePlanRow.id.desc())
Index("ix_offline_plan_first_id", OfflinePlanRow.first_id, OfflinePlanRow.created_at)
Index("ix_offline_plan_status", OfflinePlanRow.status)
