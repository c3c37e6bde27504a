"""keep former secrets

A webhook's secrets of before sign its events as well, each until its time.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from sutler.service.db.projects import drop_views, make_views

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    column = sa.Column("former_secrets", postgresql.JSONB(), nullable=False, server_default=sa.text("'[]'::jsonb"))
    op.add_column("webhook", column)
    make_views(op.get_bind())


def downgrade() -> None:
    drop_views(op.get_bind())
    op.drop_column("webhook", "former_secrets")
    make_views(op.get_bind())
