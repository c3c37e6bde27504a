"""create offline plans"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())


def times(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.DateTime(timezone=True), nullable=True) for name in names]


def numbers(*names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=True) for name in names]


def upgrade() -> None:
    op.create_table(
        "offline_plan",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("first_id", sa.Uuid(), nullable=False),
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("application", sa.JSON(), nullable=False),
        sa.Column("report", sa.JSON(), nullable=True),
        sa.Column("objective", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("failure", JSONB, nullable=True),
        sa.Column("progress", JSONB, nullable=True),
        *numbers("makespan_s", "relative_gap", "cost_usd"),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *times("started_at", "finished_at", "market_read_at"),
        *numbers("solve_seconds"),
        sa.ForeignKeyConstraint(
            ["first_id"], ["offline_plan.id"], name=op.f("fk_offline_plan_first_id_offline_plan")
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"], ["offline_plan.id"], name=op.f("fk_offline_plan_parent_id_offline_plan")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offline_plan")),
    )
    newest_first: list[sa.ColumnElement[object]] = [
        sa.literal_column("created_at DESC"),
        sa.literal_column("id DESC"),
    ]
    op.create_index("ix_offline_plan_created_at", "offline_plan", newest_first, unique=False)
    op.create_index("ix_offline_plan_first_id", "offline_plan", ["first_id", "created_at"], unique=False)
    op.create_index("ix_offline_plan_status", "offline_plan", ["status"], unique=False)


def downgrade() -> None:
    op.drop_table("offline_plan")
