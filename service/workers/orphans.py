"""Jobs whose worker is silent: each is put back into the queue by whoever sees it first."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.queue import LOOK
from sutler.service.plans import claims
from sutler.service.plans.claims import MADE_BY

logger = logging.getLogger("sutler.worker")

_ORPHANS: Final = text("""
    SELECT j.id, j.task_name, j.args FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
    WHERE j.status = 'doing' AND (w.id IS NULL OR w.last_heartbeat < now() - :silent_s * interval '1 second')
    FOR UPDATE OF j SKIP LOCKED
""")
# A new job: a worker that was silent and lives can end the old one, of which there is nothing left, but not this one.
_AGAIN: Final = text("""
    WITH lost AS (DELETE FROM procrastinate_jobs WHERE id = :job_id RETURNING queue_name, task_name, args)
    INSERT INTO procrastinate_jobs (queue_name, task_name, args) SELECT * FROM lost
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
