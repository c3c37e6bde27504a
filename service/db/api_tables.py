"""The tables of the service: keys, plans, studies, deployments, earlier answers, webhooks and the audit log.

The job queue's own tables are Procrastinate's and live in a schema of their own (`queue_schema`).
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, ForeignKey, Identity, Index, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from sutler.service.db.tables import NOW, Base
from sutler.service.settings import DEFAULT_PROJECT


class ProjectRow(Base):
    """Whom rows belong to, and how much of the service it may use; NULL: as much as there is."""

    __tablename__ = "project"

    name: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    most_requests_per_minute: Mapped[int | None]
    most_solves_at_once: Mapped[int | None]
    most_stored_plans: Mapped[int | None]


class RetentionRow(Base):
    """For how long a project keeps rows of one kind, as its operator said, and how many were deleted since for that.

    Without a row they are kept for as long as the service keeps them anyway. Kinds are those of auth/projects.py.
    """

    __tablename__ = "retention"

    project: Mapped[str] = mapped_column(ForeignKey("project.name"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    kept_s: Mapped[int] = mapped_column(BigInteger)
    deleted: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class Owned:
    """What the tables of projects have in common. A transaction of one need not name it (projects.py)."""

    project: Mapped[str] = mapped_column(ForeignKey("project.name"), server_default=text(f"'{DEFAULT_PROJECT}'"))


class ApiKeyRow(Owned, Base):
    """A key for the API: its public id, and the digest of its secret, never the secret.

    `weight`: how many of its plans are made for each one of a key of weight 1, while both wait.
    """

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    scope: Mapped[str]
    weight: Mapped[int] = mapped_column(server_default=text("1"))
    secret_sha256: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class KeyUseRow(Base):
    """How many changes a key made in one minute; all API processes count here."""

    __tablename__ = "key_use"

    actor: Mapped[str] = mapped_column(primary_key=True)
    minute: Mapped[datetime] = mapped_column(primary_key=True)
    changes: Mapped[int]


class WebSessionRow(Base):
    """Somebody who has signed in with a key to look at pages: the digest of what their browser shows."""

    __tablename__ = "web_session"

    token_sha256: Mapped[bytes] = mapped_column(primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_key.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    used_at: Mapped[datetime] = mapped_column(server_default=NOW)
    ends_at: Mapped[datetime]


Index("ix_web_session_ends_at", WebSessionRow.ends_at)


class AuditRow(Owned, Base):
    """Who changed what, and when. `detail` never holds a secret."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=NOW)
    actor: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    request_id: Mapped[str | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))

    __table_args__ = (
        Index("ix_audit_target", "target", "id"),
        Index("ix_audit_project", "project", "id"),
        Index("ix_audit_project_at", "project", "at"),
    )


class DeploymentRow(Owned, Base):
    """A standing problem, its keys in the order given. `version` counts its changes.

    `plan_id` is its current plan; `revision` counts its plans, current or not.
    """

    __tablename__ = "deployment"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    version: Mapped[int] = mapped_column(server_default=text("1"))
    problem: Mapped[dict[str, Any]] = mapped_column(JSON)
    policy: Mapped[dict[str, Any]] = mapped_column(JSON)
    plan_id: Mapped[UUID | None]
    revision: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (UniqueConstraint("project", "name", name="uq_deployment_project_name"),)


class AskedPlan(Owned):
    """What the tables of plans have in common: a plan that was asked for, from the moment it was asked for.

    `status` is queued, running, cancelled, failed, or the status of the finished plan, whose document is kept as the
    text that callers get. `attempt` counts how often a worker has taken it up: only the last one may finish it;
    `deaths` how many of them died.
    """

    id: Mapped[UUID] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(server_default=text("'queued'"))
    objective: Mapped[str]
    document: Mapped[str | None]
    failure: Mapped[dict[str, Any] | None]
    progress: Mapped[dict[str, Any] | None]
    relative_gap: Mapped[float | None]
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    deaths: Mapped[int] = mapped_column(server_default=text("0"))
    created_by: Mapped[str]
    request_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    market_read_at: Mapped[datetime | None]
    solve_seconds: Mapped[float | None]


class PlanRow(AskedPlan, Base):
    """A plan of GPUs to rent for a problem.

    `reason` says why a deployment has it, `diff` (JSON) what is to be done about the plan that held before.
    """

    __tablename__ = "plan"

    deployment_id: Mapped[UUID | None] = mapped_column(ForeignKey("deployment.id", ondelete="SET NULL"))
    deployment_name: Mapped[str | None]
    revision: Mapped[int | None]
    problem: Mapped[dict[str, Any]] = mapped_column(JSON)
    value: Mapped[float | None]
    cost_usd_per_hour: Mapped[float | None]
    reason: Mapped[str | None]
    diff: Mapped[str | None]

    __table_args__ = (UniqueConstraint("deployment_id", "revision", name="uq_plan_deployment_id_revision"),)


Index("ix_plan_project_created_at", PlanRow.project, PlanRow.created_at.desc(), PlanRow.id.desc())
Index(
    *("ix_plan_project_deployment_name", PlanRow.project, PlanRow.deployment_name),
    *(PlanRow.created_at.desc(), PlanRow.id.desc()),
)
Index("ix_plan_deployment_id", PlanRow.deployment_id, PlanRow.created_at.desc())
Index("ix_plan_status", PlanRow.status)


class CostRow(Owned, Base):
    """What a deployment cost from one instant to another, the same all the time; `ended_at` NULL: it still does.

    By `plan_id`, a plan that held, and which may be deleted; NULL: by what was reported as rented. `deployment_id`
    NULL: it was deleted.
    """

    __tablename__ = "cost"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    deployment_id: Mapped[UUID | None] = mapped_column(ForeignKey("deployment.id", ondelete="SET NULL"))
    deployment_name: Mapped[str]
    plan_id: Mapped[UUID | None]
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    usd_per_hour: Mapped[float]


Index("ix_cost_ended_at", CostRow.ended_at)
Index("ix_cost_project_deployment_name", CostRow.project, CostRow.deployment_name, CostRow.ended_at)
Index("ix_cost_began_at", CostRow.began_at, postgresql_where=CostRow.plan_id.is_not(None))
Index(
    "uq_cost_open",
    CostRow.deployment_id,
    text("(plan_id IS NULL)"),
    unique=True,
    postgresql_where=CostRow.ended_at.is_(None),
)


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


Index(
    *("ix_offline_plan_project_created_at", OfflinePlanRow.project),
    OfflinePlanRow.created_at.desc(),
    OfflinePlanRow.id.desc(),
)
Index(
    *("ix_offline_plan_project_name", OfflinePlanRow.project, OfflinePlanRow.name),
    *(OfflinePlanRow.created_at.desc(), OfflinePlanRow.id.desc()),
)
Index("ix_offline_plan_first_id", OfflinePlanRow.first_id, OfflinePlanRow.created_at)
Index("ix_offline_plan_parent_id", OfflinePlanRow.parent_id)
Index("ix_offline_plan_status", OfflinePlanRow.status)


class StudyRow(AskedPlan, Base):
    """A what-if, a comparison or a simulation; `asked` is the question, `digest` that of its kind and content."""

    __tablename__ = "study"

    kind: Mapped[str]
    asked: Mapped[dict[str, Any]] = mapped_column(JSON)
    digest: Mapped[bytes]


Index(
    *("ix_study_project_kind_created_at", StudyRow.project, StudyRow.kind),
    *(StudyRow.created_at.desc(), StudyRow.id.desc()),
)
Index("ix_study_digest", StudyRow.digest, StudyRow.created_at.desc())
Index("ix_study_status", StudyRow.status)
Index(
    *("ix_study_plan_id", StudyRow.kind),
    text("((asked -> 'plan'::text) ->> 'id'::text)"),
    postgresql_where=text("kind = 'simulation'"),
)


class IdempotencyRow(Base):
    """A request that must not be carried out twice, and its answer: the plan it started, or the whole response."""

    __tablename__ = "idempotency"

    actor: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    operation: Mapped[str]
    body_sha256: Mapped[bytes]
    plan_id: Mapped[UUID | None]
    is_async: Mapped[bool] = mapped_column(server_default=text("false"))
    status_code: Mapped[int | None]
    location: Mapped[str | None]
    body: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


Index("ix_idempotency_created_at", IdempotencyRow.created_at)


class WebhookRow(Owned, Base):
    """Where events are sent. The secret signs them and must be readable for that; no answer shows it again.

    It is stored as it is, or encrypted (webhooks/sealing.py). `former_secrets` sign as well, each until its time.
    """

    __tablename__ = "webhook"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    url: Mapped[str]
    events: Mapped[list[str]] = mapped_column(ARRAY(Text))
    description: Mapped[str] = mapped_column(server_default=text("''"))
    secret: Mapped[str]
    former_secrets: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    created_by: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class DeliveryRow(Base):
    """One event for one webhook: `body` is what is signed and sent, the same at every attempt."""

    __tablename__ = "delivery"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    webhook_id: Mapped[UUID] = mapped_column(ForeignKey("webhook.id", ondelete="CASCADE"))
    event: Mapped[str]
    body: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=text("'pending'"))
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    last_status_code: Mapped[int | None]
    last_error: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    finished_at: Mapped[datetime | None]


Index("ix_delivery_webhook_id", DeliveryRow.webhook_id, DeliveryRow.created_at.desc())
Index("ix_delivery_created_at", DeliveryRow.created_at.desc(), DeliveryRow.id.desc())
