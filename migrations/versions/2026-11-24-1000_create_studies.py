"""create studies"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())


def upgrade() -> None:
    op.create_table(
        "study",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("objective", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=True),
        sa.Column("failure", JSONB, nullable=True),
        sa.Column("progress", JSONB, nullable=True),
        sa.Column("relative_gap", sa.Double(), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deaths", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("market_read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("solve_seconds", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_study")),
    )
    newest: list[sa.ColumnElement[object]] = [sa.literal_column("created_at DESC"), sa.literal_column("id DESC")]
    op.create_index("ix_study_created_at", "study", newest, unique=False)
    op.create_index("ix_study_digest", "study", ["digest", sa.literal_column("created_at DESC")], unique=False)
    op.create_index("ix_study_status", "study", ["status"], unique=False)


def downgrade() -> None:
    op.drop_table("study")
