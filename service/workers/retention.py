"""Deletes what is older than its project's operator said that it is kept (service/auth/projects.py).

In batches, each a short transaction: what a batch has chosen is locked, and others pass over it, so that any number
of workers may do this at once. What something refers to stays, whatever its age (service/plans/deletion.py).
"""

import logging
from collections import Counter
from datetime import datetime
from typing import Final

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.auth.projects import RetentionKind
from sutler.service.db.asynchronous import begun
from sutler.service.plans.claims import MADE_BY
from sutler.service.plans.deletion import HOLDS

logger = logging.getLogger("sutler.worker")

AT_ONCE: Final = 500  # chosen: plans of some ten kB are gone in well under a second
_GIVEN_UP: Final = "p.status IN ('failed', 'cancelled')"
_OF_DEPLOYMENTS: Final = "deployment d ON d.project = r.project JOIN {} p ON p.deployment_id = d.id"
# The decision for the plan that holds stands, and those since.
_STANDS: Final = "p.revision >= (SELECT held.revision FROM plan held WHERE held.id = d.plan_id)"


def _batch(table: str, at: str, *, rows: str = "{} p ON p.project = r.project", where: str, held: str) -> TextClause:
    """`at`: the column that says how old a row `p` is; `rows`: how those of a project are found."""
    return text(f"""
        WITH old AS (
            SELECT p.id, r.project FROM retention r JOIN {rows.format(table)}
            WHERE r.kind = :kind AND p.{at} < :now - r.kept_s * interval '1 second'
            AND {where} AND NOT coalesce({held}, false)
            LIMIT {AT_ONCE} FOR UPDATE OF p SKIP LOCKED
        ), gone AS (
            DELETE FROM {table} p USING old WHERE p.id = old.id RETURNING old.project
        )
        UPDATE retention r SET deleted = r.deleted + mine.number
        FROM (SELECT project, count(*) AS number FROM gone GROUP BY project) mine
        WHERE r.project = mine.project AND r.kind = :kind RETURNING r.project, mine.number
    """)


def _plans(where: str) -> list[TextClause]:
    return [
        _batch(
            *(table.__tablename__, "created_at"),
            where=where,
            held=f"({' OR '.join(hold.condition for hold in HOLDS[table])})",
        )
        for table in MADE_BY.values()
    ]


_BATCHES: Final[dict[RetentionKind, list[TextClause]]] = {
    "plans": _plans(f"NOT {_GIVEN_UP}"),
    "jobs": _plans(_GIVEN_UP),
    "decisions": [_batch("decision", "at", rows=_OF_DEPLOYMENTS, where="true", held=_STANDS)],
    "observations": [_batch("observation", "received_at", rows=_OF_DEPLOYMENTS, where="true", held="false")],
    "audit": [_batch("audit", "at", where="true", held="false")],
}


async def delete_old(engine: AsyncEngine, now: datetime) -> Counter[tuple[str, RetentionKind]]:
    """How many rows of which project and kind are gone; the engine is `across` all projects. Raises DatabaseError."""
    gone: Counter[tuple[str, RetentionKind]] = Counter()
    for kind, batches in _BATCHES.items():
        for batch in batches:
            while of_projects := await _deleted(engine, batch, kind, now):
                gone.update({(project, kind): number for project, number in of_projects.items()})
    for (project, kind), number in gone.items():
        logger.info("retention: %d %s of project %s were old enough to be deleted", number, kind, project)
    return gone


async def _deleted(engine: AsyncEngine, batch: TextClause, kind: RetentionKind, now: datetime) -> dict[str, int]:
    async with begun(engine) as connection:
        rows = await connection.execute(batch, {"kind": kind, "now": now})
        return {row.project: row.number for row in rows}
