"""The tables of the job queue: Procrastinate's own, in a schema of their own so that ours stay apart.

Every connection has both schemas on its search path. https://procrastinate.readthedocs.io
"""

from contextlib import closing
from typing import Final

from sqlalchemy import Connection, text

QUEUE_SCHEMA: Final = "queue"
SEARCH_PATH: Final = f"public, {QUEUE_SCHEMA}"

# The newest of the library's migrations that `create` includes. When the library brings newer ones, ours must apply
# them to databases that were made before, which a test reminds of.
NEWEST_SCRIPT: Final = "03.04.00_50_post_add_retry_failed_job_procedure.sql"


def is_ours(name: str | None, kind: str, parents: object) -> bool:
    """Alembic's `include_name`: leaves the queue's tables, which the search path shows, out of comparisons."""
    return not (kind == "table" and (name or "").startswith("procrastinate_"))


def create(connection: Connection) -> None:
    """Makes the queue's tables and functions."""
    from procrastinate.schema import SchemaManager

    connection.execute(text(f"CREATE SCHEMA {QUEUE_SCHEMA}"))
    connection.execute(text(f"SET LOCAL search_path TO {QUEUE_SCHEMA}, public"))
    with closing(connection.connection.cursor()) as cursor:  # without parameters, a % in it is just that
        cursor.execute(SchemaManager.get_schema())
    connection.execute(text(f"SET LOCAL search_path TO {SEARCH_PATH}"))


def drop(connection: Connection) -> None:
    """Removes them with all jobs."""
    connection.execute(text(f"DROP SCHEMA {QUEUE_SCHEMA} CASCADE"))
