"""keep contracts of standing deployments

`market.filter.contracts` was [on_demand] where a problem did not say; it is [on_demand, reserved] now. What stands,
and plans that are still to be made, keep what they were given: the old default is written into them.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

OLD_DEFAULT = ["on_demand"]


def upgrade() -> None:
    for table, condition in (("deployment", "true"), ("plan", "status IN ('queued', 'running')")):
        _keep(table, condition)


def downgrade() -> None:
    """What is written out means the same to the version before."""


def _keep(table: str, condition: str) -> None:
    connection = op.get_bind()
    unsaid = "problem #> '{market,filter,contracts}' IS NULL"
    rows = connection.execute(
        sa.text(f"SELECT id, CAST(problem AS text) FROM {table} WHERE {condition} AND {unsaid}")
    )
    for id_, text in rows.all():
        problem = json.loads(text)  # not by jsonb, which would lose the order of the keys
        problem.setdefault("market", {}).setdefault("filter", {})["contracts"] = OLD_DEFAULT
        change = sa.text(f"UPDATE {table} SET problem = CAST(:problem AS json) WHERE id = :id")
        connection.execute(change, {"problem": json.dumps(problem), "id": id_})
