"""tell urgent looks

`watch.urgent` is what `touches` counted when machines were last reported: until a look has got there, it goes first.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("watch", sa.Column("urgent", sa.BigInteger(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    op.drop_column("watch", "urgent")
