"""A worker's way to the queue, which outlives a lost database.

Procrastinate's own ends its signs of life and its listening at the first error, for good, and its pool of connections
comes back the more slowly, the longer the database was away. Here all goes through the store's engine, and what is
missed meanwhile is made up for. Nor does Procrastinate hear of jobs that come while it looks for some, or of locks
that get free, so that it would have to look all the time. Here both are heard of.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, LiteralString

import psycopg
from procrastinate import App, PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager, get_channel_for_queues
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.asynchronous import begun, conninfo
from sutler.service.db.errors import DatabaseError, DatabaseUnreachableError
from sutler.service.db.listening import listened
from sutler.service.db.queue import NOTICE, channel_of

logger = logging.getLogger("sutler.worker")

RECONNECT_S: Final = 1.0  # chosen: a database that is away is not asked in a tight loop
_IS_FREE: Final[LiteralString] = "SELECT pg_notify(%(channel)s, %(notice)s)"
_LEAVE: Final[LiteralString] = """
    UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL
    WHERE worker_id = %(worker_id)s AND status = 'doing' AND NOT id = ANY (%(held)s) RETURNING id
"""


def store_app(engine: AsyncEngine) -> App:
    """An app to add tasks to, and to run workers of."""
    connector = StoreConnector(engine)
    app = App(connector=connector)
    app.job_manager = PatientJobs(connector)
    return app


class StoreConnector(PsycopgConnector):
    """Asks on connections of the engine. Raises DatabaseUnreachableError where the database is away."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__()
        self._engine = engine
        self._notices = Counter[str]()

    async def open_async(self, pool: object = None) -> None:
        """The engine is open as long as the process needs it."""

    async def close_async(self) -> None:
        """The engine's owner closes it."""

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        await self.execute_query_all_async(query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        async with self._connection() as connection:
            row: dict[str, Any] = await self.execute_query_one_async_with_connection(connection, query, **arguments)
            return row

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        async with self._connection() as connection:
            rows: list[dict[str, Any]]
            rows = await self.execute_query_all_async_with_connection(connection, query, **arguments)
            return rows

    def notices(self, queues: Iterable[str] | None) -> int:
        """How many were heard of these queues."""
        return sum(self._notices[channel] for channel in get_channel_for_queues(queues))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        async with begun(self._engine) as connection:
            raw = await connection.get_raw_connection()
            try:
                yield raw.driver_connection
            except ConnectorException as error:
                if isinstance(error.__cause__, psycopg.OperationalError | psycopg.InternalError):
                    raise DatabaseUnreachableError(f"the database cannot be used now: {error.__cause__}") from error
                raise

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Listens until cancelled. Who listens again looks at once for what came meanwhile."""
        names = list(channels)
        while True:
            try:
                async with aclosing(listened(conninfo(self._engine), *names, called="sutler queue")) as notices:
                    async for notice in notices:
                        payload = NOTICE if notice is None else notice.payload
                        self._notices.update(names if notice is None else [notice.channel])
                        await on_notification(channel=names[0], payload=payload)
            except (psycopg.Error, OSError) as error:
                logger.warning("new jobs are not heard of: %s: listening again", type(error).__name__)
            await asyncio.sleep(RECONNECT_S)


class PatientJobs(JobManager):
    """While the database is away there are no jobs; after that, this worker has those again that it knows of."""

    def __init__(self, connector: StoreConnector) -> None:
        super().__init__(connector)
        self._connector = connector
        self._held: set[int] = set()
        self._unsure: set[int] = set()

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        try:
            if worker_id in self._unsure:
                await self._leave_unknown(worker_id)
            job, heard = None, -1
            while job is None and heard != self._connector.notices(queues):
                heard = self._connector.notices(queues)
                job = await super().fetch_job(queues, worker_id)
        except DatabaseError as error:
            self._unsure.add(worker_id)
            logger.warning("the queue cannot be reached: %s", error)
            return None
        if job is not None and job.id is not None:
            self._held.add(job.id)
        return job

    async def _leave_unknown(self, worker_id: int) -> None:
        """A job that was fetched while the connection broke would be this worker's for ever, and never begun."""
        rows = await self.connector.execute_query_all_async(_LEAVE, worker_id=worker_id, held=list(self._held))
        self._unsure.discard(worker_id)
        if rows:
            logger.warning("%d jobs were taken out of the queue without getting here: they are back", len(rows))

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """A job that cannot be ended now is taken up once more, and found to be done. Who waits for its lock hears
        that it is free."""
        try:
            await super().finish_job(job, status, delete_job)
            if job.lock is not None:
                await self.connector.execute_query_all_async(_IS_FREE, channel=channel_of(job.queue), notice=NOTICE)
        except DatabaseError:
            if job.worker_id is not None:
                self._unsure.add(job.worker_id)
        except ConnectorException as error:
            logger.info("job %s is no longer this worker's: %s", job.id, error.__cause__)
        finally:
            self._held.discard(job.id or 0)

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        """Returns no jobs: who cancels a plan says so in its row."""
        return ()

    async def update_heartbeat(self, worker_id: int) -> None:
        try:
            await super().update_heartbeat(worker_id)
        except DatabaseError as error:
            logger.warning("no sign of life can be given: %s", error)

    async def unregister_worker(self, worker_id: int) -> None:
        """Silence says the same, a little later."""
        try:
            await super().unregister_worker(worker_id)
        except DatabaseError as error:
            logger.warning("the end of this worker is not noted: %s", error)
