"""create retention

What a project's operator said of how long rows are kept. Plans can go now: what they cost stays. The version before
knows neither, and deletes no plan.
"""

import sqlalchemy as sa
from alembic import op

from sutler.service.db.projects import drop_views, make_views

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NEWEST_FIRST = [sa.text("created_at DESC"), sa.text("id DESC")]
# Lists of one name or of all webhooks, which looked at every row: (index, table, columns before).
LISTED: tuple[tuple[str, str, list[str]], ...] = (
    ("ix_plan_project_deployment_name", "plan", ["project", "deployment_name"]),
    ("ix_offline_plan_project_name", "offline_plan", ["project", "name"]),
    ("ix_delivery_created_at", "delivery", []),
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
    for name, table, columns in LISTED:
        op.create_index(name, table, [*columns, *NEWEST_FIRST])
    op.create_index("ix_audit_project_at", "audit", ["project", "at"])
    op.create_index("ix_offline_plan_parent_id", "offline_plan", ["parent_id"])
    op.create_index(
        "ix_study_plan_id",
        "study",
        ["kind", sa.text("((asked -> 'plan'::text) ->> 'id'::text)")],
        postgresql_where=sa.text("kind = 'simulation'"),
    )
    make_views(op.get_bind())


def downgrade() -> None:
    drop_views(op.get_bind())
    op.drop_index("ix_study_plan_id", table_name="study")
    op.drop_index("ix_offline_plan_parent_id", table_name="offline_plan")
    op.drop_index("ix_audit_project_at", table_name="audit")
    for name, table, _ in LISTED:
        op.drop_index(name, table_name=table)
    op.execute("DELETE FROM cost WHERE plan_id IS NOT NULL AND NOT EXISTS (SELECT FROM plan WHERE id = plan_id)")
    op.create_foreign_key("fk_cost_plan_id_plan", "cost", "plan", ["plan_id"], ["id"], ondelete="CASCADE")
    op.drop_table("retention")
    make_views(op.get_bind())
