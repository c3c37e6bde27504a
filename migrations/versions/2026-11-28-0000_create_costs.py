"""create costs

What deployments cost over time, as it came: by the plans that held and by what was reported as rented.
What was before is put together from the plans and the audit log.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_PLANNED = """
    INSERT INTO cost (deployment_id, deployment_name, plan_id, began_at, ended_at, usd_per_hour)
    SELECT deployment_id, deployment_name, id, finished_at, ended_at, coalesce(cost_usd_per_hour, 0) FROM (
        SELECT p.*, least(
            lead(finished_at) OVER (PARTITION BY deployment_id, deployment_name ORDER BY finished_at, revision),
            CASE WHEN deployment_id IS NULL THEN (
                SELECT coalesce(min(at), p.finished_at) FROM audit
                WHERE target = 'deployment/' || deployment_name AND action = 'deployment.delete'
                  AND at > p.finished_at
            ) END
        ) AS ended_at
        FROM plan p
        WHERE deployment_name IS NOT NULL AND revision IS NOT NULL
          AND (status IN ('optimal', 'feasible') OR id IN (SELECT plan_id FROM deployment))
    ) held
    WHERE status IN ('optimal', 'feasible') AND (ended_at IS NULL OR finished_at < ended_at)
    ORDER BY finished_at, revision
"""
# Of what is said of one deployment, ids tell the order: times are those at which transactions began.
_REPORTED = """
    INSERT INTO cost (deployment_id, deployment_name, began_at, ended_at, usd_per_hour)
    SELECT CASE WHEN next_at IS NULL THEN d.id END, substr(target, 12), at, next_at,
           coalesce((detail ->> 'usd_per_hour')::float8, 0)
    FROM (
        SELECT a.*, lead(at) OVER (PARTITION BY target ORDER BY id) AS next_at FROM audit a
        WHERE action IN ('deployment.holdings', 'deployment.ack', 'deployment.delete')
    ) told LEFT JOIN deployment d ON d.name = substr(target, 12)
    WHERE action <> 'deployment.delete' AND (at < next_at OR next_at IS NULL AND d.id IS NOT NULL)
    ORDER BY told.id
"""


def upgrade() -> None:
    op.create_table(
        "cost",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=True),
        sa.Column("deployment_name", sa.Text(), nullable=False),
        sa.Column("plan_id", sa.Uuid(), nullable=True),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("usd_per_hour", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"], ["deployment.id"], name=op.f("fk_cost_deployment_id_deployment"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["plan_id"], ["plan.id"], name=op.f("fk_cost_plan_id_plan"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cost")),
    )
    op.execute(_PLANNED)
    op.execute(_REPORTED)
    op.create_index("ix_cost_ended_at", "cost", ["ended_at"])
    op.create_index("ix_cost_deployment_name", "cost", ["deployment_name", "ended_at"])
    op.create_index("ix_cost_began_at", "cost", ["began_at"], postgresql_where=sa.text("plan_id IS NOT NULL"))
    op.create_index(
        "uq_cost_open",
        "cost",
        ["deployment_id", sa.text("(plan_id IS NULL)")],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("cost")
