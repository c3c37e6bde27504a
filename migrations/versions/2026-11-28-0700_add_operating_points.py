"""add operating points

How engines fared between two readings of their metrics, and what was learnt of it.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("observation", sa.Column("operating", JSONB))
    op.add_column("watch", sa.Column("learnt", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")))


def downgrade() -> None:
    op.drop_column("watch", "learnt")
    op.drop_column("observation", "operating")
