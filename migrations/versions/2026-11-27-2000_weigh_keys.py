"""weigh keys

`api_key.weight`: how many plans of this key are made for each one of a key of weight 1, while both wait.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("api_key", sa.Column("weight", sa.Integer(), nullable=False, server_default=sa.text("1")))


def downgrade() -> None:
    op.drop_column("api_key", "weight")
