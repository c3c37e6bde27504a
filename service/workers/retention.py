"""Deletes what is older than its project's operator said that it is kept (service/auth/projects.py).

In batches, each a short transaction: what a batch has chosen is locked, and others pass over it, so that any number
of workers may do this at once. Each asks anew for how long rows are kept: what its operator says holds from then on,
once the batch under way has ended. What something refers to stays, whatever its age (service/plans/deletion.py).
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, get_args

from sqlalchemy import TextClause, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.api_tables import RetentionRow, StudyRow
from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.projects import of_project
from sutler.service.plans.claims import MADE_BY
from sutler.service.plans.deletion import HOLDS
from sutler.service.studies.resources import StudyKind

logger = logging.getLogger("sutler.worker")

AT_ONCE: Final = 500  # chosen: plans of some ten kB are gone in well under a second
_GIVEN_UP: Final = "p.status IN ('failed', 'cancelled')"
_KEPT: Final = text("SELECT kept_s FROM retention WHERE kind = :kind FOR NO KEY UPDATE")
_STUDIES: Final = tuple(f"p.kind = '{kind}'" for kind in get_args(StudyKind))
# The decision for the plan that holds, and those since.
_STANDS: Final = """
    p.revision >= (SELECT held.revision FROM deployment d JOIN plan held ON held.id = d.plan_id
                   WHERE d.id = p.deployment_id)
"""


def _batch(table: str, is_old: str, *, held: str = "false", order: str = "") -> TextClause:
    """Of rows `p`: which are old, by `:before`, and which of them stay all the same."""
    return text(f"""
        WITH old AS (
            SELECT p.id FROM {table} p WHERE {is_old} AND NOT coalesce({held}, false)
            {order} LIMIT {AT_ONCE} FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM {table} p USING old WHERE p.id = old.id RETURNING p.id
        )
        UPDATE retention r SET deleted = r.deleted + found.number FROM (SELECT count(*) AS number FROM gone) found
        WHERE r.kind = :kind AND found.number > 0 RETURNING found.number
    """)


def _plans(condition: str, order: str = "") -> list[TextClause]:
    """Of every kind, as its lists are indexed."""
    return [
        _batch(
            *(table.__tablename__, f"p.created_at < :before AND {condition} AND {of_kind}"),
            held=f"({' OR '.join(hold.condition for hold in HOLDS[table])})",
            order=order,
        )
        for table in MADE_BY.values()
        for of_kind in (_STUDIES if table is StudyRow else ("true",))
    ]


# In order where an index has it, which is then not read from its beginning again and again.
_BATCHES: Final[Mapping[str, Sequence[TextClause]]] = {
    "plans": _plans(f"NOT {_GIVEN_UP}", "ORDER BY p.created_at"),
    "jobs": _plans(_GIVEN_UP),
    "decisions": [_batch("decision", "p.at < :before", held=_STANDS)],
    "observations": [_batch("observation", "p.received_at < :before")],
    "audit": [_batch("audit", "p.at < :before", order="ORDER BY p.at")],
}


async def delete_old(engine: AsyncEngine, now: datetime) -> Counter[tuple[str, str]]:
    """How many rows of which project and kind are gone; the engine is `across` all projects. Raises DatabaseError."""
    async with reading(engine) as connection:
        told = (await connection.execute(select(RetentionRow.project, RetentionRow.kind))).all()
    gone: Counter[tuple[str, str]] = Counter()
    for project, kind in told:
        for batch in _BATCHES.get(kind, ()):  # the version after may keep more
            while number := await _deleted(of_project(engine, project), kind, batch, now):
                gone[project, kind] += number
    for (project, kind), number in gone.items():
        logger.info("retention: %d %s of project %s were old enough to be deleted", number, kind, project)
    return gone


async def _deleted(engine: AsyncEngine, kind: str, batch: TextClause, now: datetime) -> int:
    async with begun(engine) as connection:
        kept_s = await connection.scalar(_KEPT, {"kind": kind})
        if kept_s is None:
            return 0
        return await connection.scalar(batch, {"kind": kind, "before": now - timedelta(seconds=kept_s)}) or 0
