"""state fitness of offers

What offers state of hosts, RAM, cores, listings and traffic; `disk_usd_per_gb_month` may be unknown.

`market.filter.fit` is new, and on where a problem does not say. What stands, and plans that are still to be made,
keep what they were given: off is written into them.
"""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

COLUMNS: tuple[tuple[str, Any], ...] = (
    ("inet_up_gb_per_s", sa.Double()),
    ("inet_down_usd_per_gb", sa.Double()),
    ("inet_up_usd_per_gb", sa.Double()),
    ("host_id", sa.Text()),
    ("is_verified", sa.Boolean()),
    ("listed_until", sa.DateTime(timezone=True)),
    ("ram_gb", sa.Double()),
    ("cpu_cores", sa.Double()),
    ("compute_capability", sa.Double()),
)


def upgrade() -> None:
    for name, kind in COLUMNS:
        op.add_column("offer", sa.Column(name, kind, nullable=True))
    op.alter_column("offer", "disk_usd_per_gb_month", existing_type=sa.Double(), nullable=True)
    for table, condition in (("deployment", "true"), ("plan", "status IN ('queued', 'running')")):
        _change(table, f"{condition} AND problem #> '{{market,filter,fit}}' IS NULL", fit="off")


def downgrade() -> None:
    """Problems lose their `fit`, as the version before knows none."""
    for table in ("deployment", "plan"):
        _change(table, "problem #> '{market,filter,fit}' IS NOT NULL", fit=None)
    op.execute("UPDATE offer SET disk_usd_per_gb_month = 0 WHERE disk_usd_per_gb_month IS NULL")
    op.alter_column("offer", "disk_usd_per_gb_month", existing_type=sa.Double(), nullable=False)
    for name, _ in COLUMNS:
        op.drop_column("offer", name)


def _change(table: str, condition: str, *, fit: str | None) -> None:
    connection = op.get_bind()
    rows = connection.execute(sa.text(f"SELECT id, CAST(problem AS text) FROM {table} WHERE {condition}"))
    for id_, text in rows.all():
        problem = json.loads(text)  # not by jsonb, which would lose the order of the keys
        wanted = problem.setdefault("market", {}).setdefault("filter", {})
        wanted.pop("fit", None)
        if fit is not None:
            wanted["fit"] = fit
        change = sa.text(f"UPDATE {table} SET problem = CAST(:problem AS json) WHERE id = :id")
        connection.execute(change, {"problem": json.dumps(problem), "id": id_})
