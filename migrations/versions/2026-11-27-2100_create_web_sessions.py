"""create web sessions

Who has signed in with a key to look at pages. And an index that finds what was said of one deployment.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "web_session",
        sa.Column("token_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_key.id"], name=op.f("fk_web_session_key_id_api_key"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_web_session")),
    )
    op.create_index("ix_web_session_ends_at", "web_session", ["ends_at"], unique=False)
    op.create_index("ix_audit_target", "audit", ["target", "id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_audit_target", table_name="audit")
    op.drop_table("web_session")
