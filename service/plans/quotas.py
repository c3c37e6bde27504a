"""How many plans a project may keep, of any kind: asking for more is refused; what its deployments need is made."""

from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.web.errors import QuotaUsedUpError

# Who counts next waits until this one's plan is stored, and then counts it.
_MOST: Final = text("""
    SELECT most_stored_plans FROM project WHERE name = :project AND most_stored_plans IS NOT NULL FOR NO KEY UPDATE
""")
_REMEDY: Final = (
    "delete some (DELETE /v1/plans/ID), have its operator say how long they are kept (`sutler projects retention`)"
)
_STORED: Final = text("""
    SELECT (SELECT count(*) FROM plan) + (SELECT count(*) FROM offline_plan) + (SELECT count(*) FROM study)
""")


async def check_stored(connection: AsyncConnection, project: str) -> None:
    """Whether there is room for one more, in a transaction of the project. Raises QuotaUsedUpError."""
    most = await connection.scalar(_MOST, {"project": project})
    if most is not None and (await connection.scalar(_STORED) or 0) >= most:
        raise QuotaUsedUpError.of(project, "most_stored_plans", most, _REMEDY)
