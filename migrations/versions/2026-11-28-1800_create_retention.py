"""create retention

What a project's operator said of how long rows are kept. Plans can go now: what they cost stays. The version before
knows neither, and deletes no plan. Indexes are built afterwards (service/db/indexes.py).
"""

import sqlalchemy as sa
from alembic import op

from sutler.service.db.projects import drop_views, make_views

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

INDEXES = (
    *("ix_plan_project_deployment_name", "ix_offline_plan_project_name", "ix_delivery_created_at"),
    *("ix_audit_project_at", "ix_offline_plan_parent_id", "ix_study_plan_id"),
)


def upgrade() -> None:
    op.create_table(
        "retention",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("kept_s", sa.BigInteger(), nullable=False),
        sa.Column("deleted", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("project", "kind", name=op.f("pk_retention")),
        sa.ForeignKeyConstraint(["project"], ["project.name"], name=op.f("fk_retention_project_project")),
    )
    op.drop_constraint("fk_cost_plan_id_plan", "cost")
    make_views(op.get_bind())


def downgrade() -> None:
    drop_views(op.get_bind())
    for name in INDEXES:
        op.execute(f"DROP INDEX IF EXISTS {name}")
    op.execute("DELETE FROM cost WHERE plan_id IS NOT NULL AND NOT EXISTS (SELECT FROM plan WHERE id = plan_id)")
    op.create_foreign_key("fk_cost_plan_id_plan", "cost", "plan", ["plan_id"], ["id"], ondelete="CASCADE")
    op.drop_table("retention")
    make_views(op.get_bind())
