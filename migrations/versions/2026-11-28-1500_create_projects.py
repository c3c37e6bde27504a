"""create projects

What there is belongs to `default`, as does what the version before still writes. Names are unique in a project.
Indexes are built afterwards, and take the places of those of before (service/db/indexes.py).
"""

import sqlalchemy as sa
from alembic import op

from sutler.service.db.projects import drop_views, make_views

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

OWNED = (
    *("api_key", "audit", "calibration", "cost", "deployment", "offline_plan", "plan"),
    *("profile_layer", "profile_run", "study", "webhook"),
)
# (table, what was unique, what is unique within a project)
UNIQUE = (
    ("deployment", "uq_deployment_name", ["name"]),
    ("calibration", "uq_calibration_name_revision", ["name", "revision"]),
)
NEWEST_FIRST = [sa.text("created_at DESC"), sa.text("id DESC")]


def upgrade() -> None:
    limits = ("most_requests_per_minute", "most_solves_at_once", "most_stored_plans")
    op.create_table(
        "project",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        *(sa.Column(limit, sa.Integer(), nullable=True) for limit in limits),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_project")),
    )
    op.execute("INSERT INTO project (name) VALUES ('default')")
    for table in OWNED:
        op.add_column(table, sa.Column("project", sa.Text(), nullable=False, server_default=sa.text("'default'")))
        key = op.f(f"fk_{table}_project_project")
        op.create_foreign_key(key, table, "project", ["project"], ["name"], postgresql_not_valid=True)
    for table, before, columns in UNIQUE:
        name = before.replace(table, f"{table}_project")
        op.create_unique_constraint(name, table, ["project", *columns])
        op.drop_constraint(before, table)
    make_views(op.get_bind())


def downgrade() -> None:
    drop_views(op.get_bind())
    op.create_index("ix_cost_deployment_name", "cost", ["deployment_name", "ended_at"], if_not_exists=True)
    for table in ("plan", "offline_plan", "study"):
        op.create_index(f"ix_{table}_created_at", table, NEWEST_FIRST, if_not_exists=True)
    for table, before, columns in UNIQUE:
        op.create_unique_constraint(before, table, columns)
        op.drop_constraint(before.replace(table, f"{table}_project"), table)
    for table in OWNED:
        op.drop_column(table, "project")
    op.drop_table("project")
