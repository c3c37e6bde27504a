"""What is kept for a while only: answers to named requests, counts of changes, deliveries, jobs that failed.

Plans, deployments and the audit log are kept, unless a project's operator said for how long (retention.py); the
market's history has a retention of its own. A job whose worker is
silent is put back into the queue by whoever sees it first.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth.repository import forget_old_sessions, forget_old_use
from sutler.service.db.queue import LOOK
from sutler.service.deployments.holdings import lives_repository as lives
from sutler.service.deployments.replanning import repository as replanning
from sutler.service.deployments.traffic import repository as traffic
from sutler.service.deployments.traffic import season, season_repository
from sutler.service.plans import claims
from sutler.service.plans.claims import MADE_BY
from sutler.service.web import idempotency
from sutler.service.webhooks import repository as webhooks

EVERY_S: Final = 600.0  # chosen: what is kept for an hour goes soon after; each costs a few deletions
USE_KEPT: Final = timedelta(hours=1)  # changes and reads are counted by the minute
DELIVERIES_KEPT: Final = timedelta(days=30)  # chosen: what a receiver has lost can be replayed for a month
JOBS_KEPT: Final = timedelta(days=7)  # chosen: a failed job can be looked into for a week
_OLD_JOBS: Final = text("""
    DELETE FROM procrastinate_jobs j WHERE j.status IN ('succeeded', 'failed', 'cancelled', 'aborted')
    AND NOT EXISTS (SELECT 1 FROM procrastinate_events e WHERE e.job_id = j.id AND e.at > :before)
""")
logger = logging.getLogger("sutler.worker")
_ORPHANS: Final = text("""
    SELECT j.id, j.task_name, j.args FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
    WHERE j.status = 'doing' AND (w.id IS NULL OR w.last_heartbeat < now() - :silent_s * interval '1 second')
    FOR UPDATE OF j SKIP LOCKED
""")
# A new job: a worker that was silent and lives can end the old one, of which there is nothing left, but not this one.
_AGAIN: Final = text("""
    WITH lost AS (DELETE FROM procrastinate_jobs WHERE id = :job_id RETURNING queue_name, task_name, args, lock)
    INSERT INTO procrastinate_jobs (queue_name, task_name, args, lock) SELECT * FROM lost
""")
_FORGET: Final = text("DELETE FROM procrastinate_jobs WHERE id = :job_id")


class Watch:
    """Whether this process has looked at the store for as long as a silence lasts, without a gap.

    While the database is away nobody can give signs of life: who has not looked cannot say who is silent.
    """

    def __init__(self, silent_s: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._silent_s, self._clock = silent_s, clock
        self._began_s = self._looked_s = clock()

    def look(self) -> bool:
        """Whether it has; to be called several times in `silent_s`, while the store answers."""
        now_s = self._clock()
        if now_s - self._looked_s > self._silent_s / 2:
            self._began_s = now_s
        self._looked_s = now_s
        return now_s - self._began_s > self._silent_s


async def tidy(connection: AsyncConnection, now: datetime) -> None:
    """Forgets what is old enough. Several may do it at once."""
    await idempotency.forget_old(connection, now)
    await forget_old_use(connection, now - USE_KEPT)
    await forget_old_sessions(connection)
    await webhooks.forget_old(connection, now - DELIVERIES_KEPT)
    await traffic.forget_old(connection, now - traffic.KEPT)
    await season_repository.forget_old(connection, now - season.KEPT)
    await replanning.forget_old(connection, now - replanning.DECISIONS_KEPT)
    await lives.forget_old(connection, now - lives.KEPT)
    await connection.execute(_OLD_JOBS, {"before": now - JOBS_KEPT})


async def give_back(connection: AsyncConnection, *, silent_s: float) -> None:
    """Puts them back, in one transaction with the count of how many workers a plan has cost."""
    for job in (await connection.execute(_ORPHANS, {"silent_s": silent_s})).all():
        logger.warning("job %s (%s): its worker is silent: it is taken up again", job.id, job.task_name)
        if job.task_name in MADE_BY:
            await claims.count_death(connection, MADE_BY[job.task_name], job.args["plan_id"])
        if job.task_name == LOOK:
            await connection.execute(_FORGET, {"job_id": job.id})  # what is due is asked for anew every second
            continue
        await connection.execute(_AGAIN, {"job_id": job.id})
