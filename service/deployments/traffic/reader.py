"""Reads the feeds that are due, some at a time, and stores what they tell as observations.

Whoever is slow delays nobody: feeds have threads of their own, deployments take turns at them and none has them all.
"""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.errors import DatabaseError
from sutler.service.deployments import repository as deployments
from sutler.service.deployments.repository import touch
from sutler.service.deployments.traffic import feed_repository, repository
from sutler.service.deployments.traffic.feed_repository import StoredSource
from sutler.service.deployments.traffic.feed_schema import LONGEST_S
from sutler.service.deployments.traffic.fetching import USUAL_FETCHER, ScrapeError
from sutler.service.deployments.traffic.planned import shapes
from sutler.service.deployments.traffic.reading import FailedScrape, Get, Scraped, read
from sutler.service.deployments.traffic.window import WorkloadShape
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.outgoing.addresses import Network

logger = logging.getLogger("sutler.traffic")

AT_ONCE: Final = 16  # chosen: threads that mostly wait; engines that are slow leave room for others
MOST_OF_ONE: Final = 8  # deployment: what its engines do to their readers, others do not feel
LOOK_EVERY_S: Final = 1.0  # chosen: readings come at most so much late
GATHERED_S: Final = 0.05  # what ends within it makes room together
LONGEST_WAIT_S: Final = 300.0  # chosen: an engine that is back is read again within five minutes
CLOCK_SET_BACK: Final = timedelta(seconds=2 * LONGEST_S)


@dataclass(frozen=True, slots=True)
class FeedReader:
    """Reads the feeds; `allowed` are private networks in which engines may be."""

    engine: AsyncEngine
    allowed: tuple[Network, ...]
    now: Callable[[], datetime]
    get: Get = USUAL_FETCHER.get
    look_every_s: float = LOOK_EVERY_S

    async def run(self) -> None:
        """Reads until cancelled; what is then being read is read again. Raises DatabaseError: begin it anew."""
        readings: dict[asyncio.Task[None], StoredSource] = {}
        threads = _Threads(self.get)
        try:
            while True:
                for stored in await self._claimed(readings.values()):
                    readings[asyncio.create_task(self._read(stored, threads))] = stored
                await _until_there_is_room(readings, self.look_every_s)
        finally:
            await _end(readings)
            await threads.stop()

    async def _claimed(self, under_way: Collection[StoredSource]) -> list[StoredSource]:
        """Claims what is due now, as far as there is room."""
        room, now = AT_ONCE - len(under_way), self.now()
        if room <= 0:
            return []
        async with begun(self.engine) as connection:
            return await feed_repository.claim(
                connection,
                now,
                ahead=now + CLOCK_SET_BACK,
                most=room,
                most_of_one=MOST_OF_ONE,
                under_way=under_way,
            )

    async def _read(self, stored: StoredSource, threads: "_Threads") -> None:
        """A store that is lost meanwhile loses nothing: the next reading continues the last that is stored."""
        try:
            async with reading(self.engine) as connection:
                name, known, limits = await _fed(connection, stored)
            at = self.now()
            found = await threads.run(lambda: self._found(stored, known, limits, at, threads.get))
            await self._keep(stored, found, at, name)
        except DatabaseError as error:
            logger.warning("a feed's reading could not be stored: %s", error)
        except Exception:
            logger.exception("feed %s could not be read: a defect of sutler", stored.id)
            await self._keep_defect(stored)

    def _found(
        self,
        stored: StoredSource,
        known: tuple[WorkloadShape, ...],
        limits: Mapping[str, float],
        at: datetime,
        get: Get,
    ) -> Scraped | FailedScrape:
        if not known:
            remedy = "PUT the feeds without it, or with the model's present name"
            return FailedScrape(None, f"the deployment's problem has no model {stored.source.model!r}: {remedy}")
        return read(stored.source, known, stored.reading, at=at, allowed=self.allowed, limits=limits, get=get)

    async def _keep_defect(self, stored: StoredSource) -> None:
        """What went wrong is none of the engine's doing: its last reading stays as it is."""
        found = FailedScrape(
            stored.reading, f"could not be read: a defect of sutler, see its log for feed {stored.id}"
        )
        try:
            await self._keep(stored, found, self.now(), None)
        except DatabaseError as error:
            logger.warning("a feed's failure could not be stored: %s", error)
        except Exception:
            logger.exception("the failure of feed %s could not be stored: a defect of sutler", stored.id)

    async def _keep(
        self, stored: StoredSource, found: Scraped | FailedScrape, at: datetime, name: str | None
    ) -> None:
        """Stores what was read, unless somebody else has read it meanwhile: what came since then counts once.

        `name`: of the deployment, where its log is to have it.
        """
        async with begun(self.engine) as connection:
            now_stored = await feed_repository.locked(connection, stored.id)
            if now_stored is None or (now_stored.reading, now_stored.read_at) != (stored.reading, stored.read_at):
                return
            if isinstance(found, FailedScrape):
                await _store_failure(connection, stored, found, at)
            else:
                await _store(connection, stored, found, at)
        if name is not None:
            _log_a_turn(stored, found, name)


class _Threads:
    """Threads for feeds alone; once they are stopped, they ask for nothing more."""

    def __init__(self, get: Get) -> None:
        self._get, self._stopped = get, threading.Event()
        self._executor = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="feed")

    async def run(self, work: Callable[[], Scraped | FailedScrape]) -> Scraped | FailedScrape:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def get(self, url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes:
        if self._stopped.is_set():
            raise ScrapeError("sutler is being stopped")
        return self._get(url, accept=accept, allowed=allowed)

    async def stop(self) -> None:
        """Waits for the answers that are under way, for as long as they may take."""
        self._stopped.set()
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)


async def _until_there_is_room(readings: dict[asyncio.Task[None], StoredSource], wait_s: float) -> None:
    """Waits for room, or until it is time to look again, and forgets readings that have ended."""
    of_one = Counter(stored.deployment_id for stored in readings.values())
    if len(readings) >= AT_ONCE or max(of_one.values(), default=0) >= MOST_OF_ONE:
        await asyncio.wait(readings, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(GATHERED_S)
    else:
        await asyncio.sleep(wait_s)
    for task in [task for task in readings if task.done()]:
        del readings[task]


async def _end(readings: Collection[asyncio.Task[None]]) -> None:
    for task in readings:
        task.cancel()
    if readings:
        await asyncio.wait(readings)


async def _store(connection: AsyncConnection, stored: StoredSource, found: Scraped, at: datetime) -> None:
    await feed_repository.store(connection, stored.id, found.reading, read_at=at, error=None, failures=0)
    if found.observation is None:
        return
    digest = sha256(f"{stored.id} {at.isoformat()}".encode()).digest()
    await repository.add(
        connection,
        stored.deployment_id,
        [found.observation],
        digest=digest,
        now=at,
        latencies=found.latencies,
        operating=None if found.operating is None else {**asdict(found.operating), "replica": stored.source.replica},
    )
    await touch(connection, stored.deployment_id)


async def _store_failure(
    connection: AsyncConnection, stored: StoredSource, found: FailedScrape, at: datetime
) -> None:
    """The wait doubles with each in a row."""
    failures, every_s = stored.failures + 1, stored.source.every_s
    wait_s = max(every_s, min(every_s * 2 ** min(failures, 10), LONGEST_WAIT_S))
    due_at = at + timedelta(seconds=wait_s)
    await feed_repository.store(
        connection, stored.id, found.reading, error=found.error, failures=failures, due_at=due_at
    )


def _log_a_turn(stored: StoredSource, found: Scraped | FailedScrape, name: str) -> None:
    """When a feed begins to fail, and when it is over; of a URL only the part that can be no secret."""
    parts = urlsplit(stored.source.url)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    model, failures = stored.source.model, stored.failures
    if isinstance(found, FailedScrape) and failures == 0:
        logger.warning("%s: the feed of model %s at %s fails: %s", name, model, where, found.error)
    elif isinstance(found, Scraped) and failures > 0:
        logger.info("%s: the feed of model %s at %s answers, after %d failures", name, model, where, failures)


async def _fed(
    connection: AsyncConnection, stored: StoredSource
) -> tuple[str, tuple[WorkloadShape, ...], Mapping[str, float]]:
    """The deployment's name, and its model's workloads and latency limits: none where it has the model no more."""
    deployment = await deployments.find_by_id(connection, stored.deployment_id)
    if deployment is None:
        return "", (), {}
    models = validate(ProblemDocument, deployment.problem).models
    model = next((model for model in models if model.name == stored.source.model), None)
    if model is None:
        return deployment.name, (), {}
    return deployment.name, shapes(model), {} if model.slo is None else model.slo.model_dump(exclude_none=True)
