"""add protocols of runs

How benchmarks went, where their files say it: arrivals at random, and how much lengths varied.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("request_rate_rps", "length_spread_fraction"):
        op.add_column("profile_run", sa.Column(name, sa.Double()))


def downgrade() -> None:
    for name in ("request_rate_rps", "length_spread_fraction"):
        op.drop_column("profile_run", name)
