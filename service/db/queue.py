"""The job queue: Procrastinate on the store's PostgreSQL. Jobs are put into it in the transaction of their cause.

What a job carries is an id; all else is in the tables, so that to run a job twice does no harm.
https://procrastinate.readthedocs.io
"""

from typing import Any, Final
from uuid import UUID

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.manager import get_channel_for_queues
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.queue_schema import SEARCH_PATH
from sutler.service.settings import DEFAULT_PROJECT

SOLVES: Final = "solves"
QUICK_SOLVES: Final = "quick solves"  # as urgent looks: long ones do not hold them up
DELIVERIES: Final = "deliveries"
LOOKS: Final = "looks"
URGENT_LOOKS: Final = "urgent looks"  # taken by processes of their own, and before the others by the rest
SOLVE: Final = "solve_plan"
DELIVER: Final = "deliver_webhook"
LOOK: Final = "look_at_deployment"
PLAN_OFFLINE: Final = "plan_offline"
STUDY: Final = "make_study"
PRIORITY: Final = {STUDY: -10_000}  # what nobody carries out comes after all plans, however many wait
URGENT: Final = 10
NOTICE: Final = '{"type": "job_inserted", "job_id": 0}'  # of no job in particular
# Jobs in one line are done one after the other. None: there is no limit.
_LINE: Final = text("""
    SELECT line.name FROM project p
    CROSS JOIN LATERAL (SELECT i, 'solves/' || p.name || '/' || i AS name
                        FROM generate_series(1, p.most_solves_at_once) i) line
    LEFT JOIN procrastinate_jobs j ON j.lock = line.name AND j.status IN ('todo', 'doing')
    WHERE p.name = :project GROUP BY line.i, line.name ORDER BY count(j.id), line.i LIMIT 1
""")


def look_lock(deployment_id: object) -> str:
    """Names the lock of all jobs that look at this deployment."""
    return f"look/{deployment_id}"


def channel_of(queue: str) -> str:
    """Where workers hear of its jobs."""
    [channel] = get_channel_for_queues([queue])
    return channel


class Queue:
    """Puts jobs into the queue; a worker's `app` takes them out."""

    def __init__(self, conninfo: str) -> None:
        self.app = App(
            connector=PsycopgConnector(
                conninfo=conninfo,
                kwargs={
                    "options": f"-c search_path={SEARCH_PATH.replace(' ', '')}",
                    "application_name": "sutler queue",
                },
                min_size=1,
                max_size=6,
            )
        )

    async def make_plan(
        self,
        connection: AsyncConnection,
        task: str,
        plan_id: UUID,
        *,
        project: str = DEFAULT_PROJECT,
        behind: int = 0,
        is_quick: bool = False,
    ) -> None:
        """Has a plan made by this task, SOLVE, PLAN_OFFLINE or STUDY, once this transaction is committed.

        Of a `project` that may have so many made at once, it waits in the shortest of as many lines.

        `behind`: how many turns of the same caller's are waited for already. The first of everybody's are made before
        anybody's second, so that one who asks for many makes nobody wait but for the one that is being made; and not
        for that one who asks for something quick.
        """
        queue, priority = QUICK_SOLVES if is_quick else SOLVES, PRIORITY.get(task, 0) - behind
        line = await connection.scalar(_LINE, {"project": project})
        await self._put(connection, task, queue, lock=line, priority=priority, plan_id=str(plan_id))

    async def deliver(self, connection: AsyncConnection, delivery_id: UUID, *, delay_s: float = 0.0) -> None:
        """Has an event delivered, `delay_s` after this transaction is committed."""
        await self._put(connection, DELIVER, DELIVERIES, delay_s=delay_s, delivery_id=str(delivery_id))

    async def look(self, connection: AsyncConnection, deployment_id: UUID, *, is_urgent: bool = False) -> bool:
        """Has a deployment looked at; False where that is in the queue already. One look of each at a time."""
        name, queue = look_lock(deployment_id), URGENT_LOOKS if is_urgent else LOOKS
        priority = URGENT if is_urgent else 0
        try:
            async with connection.begin_nested():
                await self._put(
                    *(connection, LOOK, queue),
                    lock=name,
                    queueing_lock=name,
                    priority=priority,
                    deployment_id=str(deployment_id),
                )
        except AlreadyEnqueued:
            return False
        return True

    async def _put(
        self,
        connection: AsyncConnection,
        task: str,
        queue: str,
        *,
        delay_s: float = 0.0,
        lock: str | None = None,
        queueing_lock: str | None = None,
        priority: int = 0,
        **arguments: str,
    ) -> None:
        raw = await connection.get_raw_connection()
        options: dict[str, Any] = {"lock": lock, "queueing_lock": queueing_lock, "priority": priority}
        if delay_s:
            options["schedule_in"] = {"seconds": delay_s}
        deferrer = self.app.configure_task(task, queue=queue, connection=raw.driver_connection, **options)
        await deferrer.defer_async(**arguments)
