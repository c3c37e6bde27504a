"""The tables of replanning: what deployments report, what they are watched by, and what was decided."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from sutler.service.db.tables import NOW, Base


class WatchRow(Base):
    """What watching a deployment needs to know.

    `holdings` is the last report as it was given, null before the first; `held_before` the most machines of each kind
    that were reported since the plan was issued: what is missing of them is lost. A look is due when `touches`, which
    counts what has happened, is ahead of `looked`, when the market is at another `market_version` (the sum of the
    providers' changes), or at `look_at`; it goes first while `urgent`, the touch by the last report of machines, is
    ahead of `looked`. No clock is compared with another. `state` is what the last look found, for people; `memory`
    what the next one must know. `woken`: by model, when it last woke or was asked to. `learnt`: what its
    engines' metrics have said of their rates.
    """

    __tablename__ = "watch"

    deployment_id: Mapped[UUID] = mapped_column(ForeignKey("deployment.id", ondelete="CASCADE"), primary_key=True)
    holdings: Mapped[list[Any] | None]
    holdings_at: Mapped[datetime | None]
    held_before: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    touches: Mapped[int] = mapped_column(BigInteger, server_default=text("1"))
    looked: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    urgent: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    looked_at: Mapped[datetime | None]
    look_at: Mapped[datetime | None]
    market_version: Mapped[int | None] = mapped_column(BigInteger)
    state: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    memory: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    woken: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    learnt: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))


class RentalLifeRow(Base):
    """Machines of one kind that a deployment came to hold together: since which report, and until which.

    `is_lost`: they were gone although the plan that held wanted them; else they were given back, or their rental
    ended by itself. `ended_at` null: they are held. Machine, host and region are as the market named them last. What
    is left of a deployment that was deleted has none.
    """

    __tablename__ = "rental_life"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    deployment_id: Mapped[UUID | None] = mapped_column(ForeignKey("deployment.id", ondelete="SET NULL"))
    provider: Mapped[str]
    offer_id: Mapped[str]
    contract: Mapped[str]
    gpu: Mapped[str]
    gpus: Mapped[int]
    count: Mapped[int]
    machine_id: Mapped[str | None]
    host_id: Mapped[str | None]
    region: Mapped[str | None]
    began_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    is_lost: Mapped[bool] = mapped_column(server_default=text("false"))

    __table_args__ = (
        Index("ix_rental_life_held", "deployment_id", postgresql_where=text("ended_at IS NULL")),
        Index("ix_rental_life_lost", "ended_at", postgresql_where=text("is_lost")),
        Index("ix_rental_life_ended_at", "ended_at"),
    )


class ObservationRow(Base):
    """Traffic that was seen: so many requests of these sizes between two instants, by one source.

    `buckets` is a list of [input tokens, output tokens, requests]. `digest` is of what was sent: the same sent again
    is the same row. `operating`: how the engine fared that told of it, where that says how fast it is.
    """

    __tablename__ = "observation"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    deployment_id: Mapped[UUID] = mapped_column(ForeignKey("deployment.id", ondelete="CASCADE"))
    model: Mapped[str]
    source: Mapped[str] = mapped_column(server_default=text("''"))
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    digest: Mapped[bytes]
    requests: Mapped[float]
    buckets: Mapped[list[Any]]
    latencies: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    operating: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    received_at: Mapped[datetime] = mapped_column(server_default=NOW)

    __table_args__ = (
        UniqueConstraint(
            "deployment_id", "model", "source", "started_at", "digest", name="uq_observation_deployment_id_digest"
        ),
        Index("ix_observation_deployment_id_model_ended_at", "deployment_id", "model", "ended_at"),
        Index("ix_observation_received_at", "received_at"),
    )


class TrafficQuarterRow(Base):
    """Requests of a model in a quarter of an hour that a source has told of for so long; longer where windows
    overlap. They outlast the observations, so that the same time of past weeks is known.
    """

    __tablename__ = "traffic_quarter"

    deployment_id: Mapped[UUID] = mapped_column(ForeignKey("deployment.id", ondelete="CASCADE"), primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    began_at: Mapped[datetime] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(primary_key=True)
    requests: Mapped[float]
    told_s: Mapped[float]

    __table_args__ = (Index("ix_traffic_quarter_began_at", "began_at"),)


class FeedRow(Base):
    """Where a deployment's traffic is read from; `reading` is the last one, of which the next is the continuation."""

    __tablename__ = "feed"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    deployment_id: Mapped[UUID] = mapped_column(ForeignKey("deployment.id", ondelete="CASCADE"))
    model: Mapped[str]
    kind: Mapped[str]
    url: Mapped[str]
    options: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    due_at: Mapped[datetime | None]
    read_at: Mapped[datetime | None]
    reading: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
    failures: Mapped[int] = mapped_column(server_default=text("0"))

    __table_args__ = (Index("ix_feed_deployment_id", "deployment_id"), Index("ix_feed_due_at", "due_at"))


class DecisionRow(Base):
    """What was decided about a deployment's plan, and why; `revision` is the one that came of it, if one did."""

    __tablename__ = "decision"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    deployment_id: Mapped[UUID] = mapped_column(ForeignKey("deployment.id", ondelete="CASCADE"))
    at: Mapped[datetime] = mapped_column(server_default=NOW)
    basis_revision: Mapped[int | None]
    revision: Mapped[int | None]
    chosen: Mapped[str]
    reason: Mapped[str]
    drifts: Mapped[list[Any]]
    options: Mapped[list[Any]]

    __table_args__ = (
        UniqueConstraint("deployment_id", "revision", name="uq_decision_deployment_id_revision"),
        Index("ix_decision_deployment_id_at", "deployment_id", "at"),
        Index("ix_decision_at", "at"),
    )
