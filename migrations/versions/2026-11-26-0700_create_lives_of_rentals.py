"""create lives of rentals

Since when and until when machines are held, and which were lost. The growth of holdings, which follows from it, goes.
What stands goes on to order machines for the traffic that is there: `policy.lead_quantile` is new, and on where a
policy does not say. Models may sleep, and `watch.woken` says when each was last woken. Quarters
of an hour of traffic are kept for weeks.
"""

import json

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Unknown to the version before.
_NEW = frozenset(
    {"avoid_lost_s", "budget", "calendar", "lead_quantile", "most_growth_factor", "priority", "sleep", "season"}
    | {"most_started_machines", "most_started_usd_per_hour", "most_stopped_fraction"}
)

# What is held is held since the last report that says so: how long before, nobody has noted.
_WHAT_IS_HELD = """
    INSERT INTO rental_life (deployment_id, provider, offer_id, contract, gpu, gpus, count, began_at)
    SELECT w.deployment_id, h.provider, h.offer_id, h.contract, h.gpu, h.gpus, sum(h.count), w.holdings_at
    FROM watch w CROSS JOIN LATERAL jsonb_to_recordset(w.holdings)
        AS h(provider text, offer_id text, contract text, gpu text, gpus int, count int)
    WHERE w.holdings IS NOT NULL AND w.holdings_at IS NOT NULL
    GROUP BY w.deployment_id, h.provider, h.offer_id, h.contract, h.gpu, h.gpus, w.holdings_at
"""


def upgrade() -> None:
    op.create_table(
        "rental_life",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("deployment_id", sa.Uuid(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("offer_id", sa.Text(), nullable=False),
        sa.Column("contract", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=True),
        sa.Column("host_id", sa.Text(), nullable=True),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("is_lost", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployment.id"],
            name=op.f("fk_rental_life_deployment_id_deployment"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rental_life")),
    )
    held, lost = sa.text("ended_at IS NULL"), sa.text("is_lost")
    op.create_index("ix_rental_life_held", "rental_life", ["deployment_id"], postgresql_where=held)
    op.create_index("ix_rental_life_lost", "rental_life", ["ended_at"], postgresql_where=lost)
    op.create_index("ix_rental_life_ended_at", "rental_life", ["ended_at"])
    op.create_table(
        "traffic_quarter",
        sa.Column("deployment_id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("requests", sa.Double(), nullable=False),
        sa.Column("told_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployment.id"],
            name=op.f("fk_traffic_quarter_deployment_id_deployment"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("deployment_id", "model", "began_at", "source", name=op.f("pk_traffic_quarter")),
    )
    op.create_index("ix_traffic_quarter_began_at", "traffic_quarter", ["began_at"])
    op.execute(_WHAT_IS_HELD)
    op.drop_column("watch", "grown")
    op.add_column("watch", sa.Column("woken", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")))
    for id_, policy in _policies():
        _set_policy(id_, {**policy, "lead_quantile": None})


def downgrade() -> None:
    op.add_column("watch", sa.Column("grown", JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb")))
    op.drop_column("watch", "woken")
    op.drop_table("traffic_quarter")
    op.drop_table("rental_life")
    for id_, policy in _policies():
        _set_policy(id_, {name: value for name, value in policy.items() if name not in _NEW})


def _policies() -> list[tuple[object, dict[str, object]]]:
    rows = op.get_bind().execute(sa.text("SELECT id, CAST(policy AS text) FROM deployment"))
    return [(id_, json.loads(policy)) for id_, policy in rows]  # not by jsonb, which would lose the order of the keys


def _set_policy(id_: object, policy: dict[str, object]) -> None:
    change = sa.text("UPDATE deployment SET policy = CAST(:policy AS json) WHERE id = :id")
    op.get_bind().execute(change, {"policy": json.dumps(policy), "id": id_})
