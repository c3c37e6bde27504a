"""create profiles"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSONB = postgresql.JSONB(astext_type=sa.Text())


def numbered(table: str, *columns: sa.schema.SchemaItem) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )


def imported(table: str) -> list[sa.schema.SchemaItem]:
    return [
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("imported_from", sa.Text(), nullable=False),
        sa.UniqueConstraint("digest", name=op.f(f"uq_{table}_digest")),
    ]


def texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def numbers(*names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=False) for name in names]


def upgrade() -> None:
    numbered(
        "profile_run",
        *imported("profile_run"),
        *texts("gpu", "model", "precision", "kv_precision", "engine", "engine_version"),
        sa.Column("tensor_parallel", sa.Integer(), nullable=False),
        sa.Column("pipeline_parallel", sa.Integer(), nullable=False),
        *numbers("input_tokens", "output_tokens", "concurrency", "req_per_s", "ttft_s", "tpot_s"),
        sa.Column("completed", sa.BigInteger(), nullable=True),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=True),
    )
    op.create_index("ix_profile_run_gpu_model", "profile_run", ["gpu", "model"], unique=False)
    numbered(
        "profile_layer",
        *imported("profile_layer"),
        *texts("gpu", "model", "precision"),
        sa.Column("row", JSONB, nullable=False),
    )
    op.create_index("ix_profile_layer_gpu_model", "profile_layer", ["gpu", "model"], unique=False)
    numbered(
        "calibration",
        *texts("name"),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("document", JSONB, nullable=False),
        sa.UniqueConstraint("name", "revision", name="uq_calibration_name_revision"),
    )


def downgrade() -> None:
    for table in ("calibration", "profile_layer", "profile_run"):
        op.drop_table(table)
