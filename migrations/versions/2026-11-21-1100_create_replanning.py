"""create replanning"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())
EMPTY = sa.text("'{}'::jsonb")
NOW = sa.text("now()")


def at(name: str, *, nullable: bool = False, default: bool = False) -> sa.Column[datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=NOW if default else None, nullable=nullable)


def of_deployment(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_deployment_id_deployment")
    return sa.ForeignKeyConstraint(["deployment_id"], ["deployment.id"], name=name, ondelete="CASCADE")


def upgrade() -> None:
    op.create_table(
        "watch",
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        sa.Column("holdings", JSONB, nullable=True),
        at("holdings_at", nullable=True),
        sa.Column("held_before", JSONB, server_default=EMPTY, nullable=False),
        sa.Column("touches", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("looked", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        at("looked_at", nullable=True),
        at("look_at", nullable=True),
        sa.Column("market_version", sa.BigInteger(), nullable=True),
        sa.Column("state", JSONB, server_default=EMPTY, nullable=False),
        sa.Column("memory", JSONB, server_default=EMPTY, nullable=False),
        of_deployment("watch"),
        sa.PrimaryKeyConstraint("deployment_id", name=op.f("pk_watch")),
    )
    op.create_table(
        "observation",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("''"), nullable=False),
        at("started_at"),
        at("ended_at"),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("requests", sa.Double(), nullable=False),
        sa.Column("buckets", JSONB, nullable=False),
        sa.Column("latencies", JSONB, server_default=EMPTY, nullable=False),
        at("received_at", default=True),
        of_deployment("observation"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observation")),
        sa.UniqueConstraint(
            "deployment_id", "model", "source", "started_at", "digest", name="uq_observation_deployment_id_digest"
        ),
    )
    op.create_index(
        "ix_observation_deployment_id_model_ended_at",
        "observation",
        ["deployment_id", "model", "ended_at"],
        unique=False,
    )
    op.create_index("ix_observation_received_at", "observation", ["received_at"], unique=False)
    op.create_table(
        "feed",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("options", JSONB, server_default=EMPTY, nullable=False),
        at("due_at", nullable=True),
        at("read_at", nullable=True),
        sa.Column("reading", JSONB, nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        of_deployment("feed"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed")),
    )
    op.create_index("ix_feed_deployment_id", "feed", ["deployment_id"], unique=False)
    op.create_index("ix_feed_due_at", "feed", ["due_at"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        at("at", default=True),
        sa.Column("basis_revision", sa.Integer(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=True),
        sa.Column("chosen", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("drifts", JSONB, nullable=False),
        sa.Column("options", JSONB, nullable=False),
        of_deployment("decision"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
        sa.UniqueConstraint("deployment_id", "revision", name="uq_decision_deployment_id_revision"),
    )
    op.create_index("ix_decision_deployment_id_at", "decision", ["deployment_id", "at"], unique=False)
    op.create_index("ix_decision_at", "decision", ["at"], unique=False)
    op.add_column("plan", sa.Column("reason", sa.Text(), nullable=True))
    op.add_column("plan", sa.Column("diff", sa.Text(), nullable=True))
    op.add_column("provider", sa.Column("changes", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("provider", sa.Column("stale_since", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_offer_past",
        "offer",
        ["provider_id", "offer_id", "contract", sa.literal_column("((lower(valid) AT TIME ZONE 'UTC')::date)")],
        unique=False,
        postgresql_where=sa.text("upper(valid) IS NOT NULL"),
    )
    op.execute("INSERT INTO watch (deployment_id) SELECT id FROM deployment")


def downgrade() -> None:
    op.drop_index("ix_offer_past", table_name="offer", postgresql_where=sa.text("upper(valid) IS NOT NULL"))
    op.drop_column("provider", "stale_since")
    op.drop_column("provider", "changes")
    op.drop_column("plan", "diff")
    op.drop_column("plan", "reason")
    for table in ("decision", "feed", "observation", "watch"):
        op.drop_table(table)
