"""Jobs are taken as soon as they can be: none waits until a worker looks by itself."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from procrastinate import App
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from sqlalchemy import Engine

from sutler.service.db.asynchronous import open_async_engine
from sutler.service.workers.store_queue import store_app
from tests.service.running import PATIENCE_S

NEVER_S: Final = 10 * PATIENCE_S


@asynccontextmanager
async def an_app(engine: Engine) -> AsyncIterator[App]:
    opened = open_async_engine(engine)
    try:
        yield store_app(opened)
    finally:
        await opened.dispose()


@asynccontextmanager
async def taking(app: App, queues: Sequence[str]) -> AsyncIterator[None]:
    """A worker with two places that never looks by itself."""
    options: Any = {"fetch_job_polling_interval": NEVER_S, "install_signal_handlers": False}
    working = asyncio.ensure_future(app.run_worker_async(queues=[*queues], concurrency=2, **options))
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait({working})


def test_a_job_that_comes_while_jobs_are_looked_for_is_taken_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, done, looks = JobManager.fetch_job, asyncio.Event(), list[int]()

    async def work() -> None:
        async with an_app(engine) as app:

            @app.task(name="work", queue="late")
            async def task() -> None:
                done.set()

            async def too_early(manager: JobManager, queues: Iterable[str] | None, worker_id: int) -> Job | None:
                """The first look finds nothing, and ends when a job has come meanwhile."""
                looks.append(worker_id)
                found = await fetch(manager, queues, worker_id)
                if len(looks) == 1:
                    while not heard(app):
                        await asyncio.sleep(0.01)
                    before = heard(app)
                    await task.defer_async()
                    while heard(app) == before:
                        await asyncio.sleep(0.01)
                return found

            monkeypatch.setattr(JobManager, "fetch_job", too_early)
            async with taking(app, ["late"]), asyncio.timeout(PATIENCE_S):
                await done.wait()

    asyncio.run(work())
    assert len(looks) >= 2


def heard(app: App) -> int:
    connector: Any = app.connector
    return int(connector.notices(["late"]))


@pytest.mark.parametrize("queues", [("here", "here"), ("here", "there")])
def test_who_waits_for_a_lock_is_taken_when_it_is_free(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, queues: tuple[str, str]
) -> None:
    """A place is free, and the second job has been passed by when the first one ends."""
    fetch, began, passed_by, done = JobManager.fetch_job, list[str](), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with an_app(engine) as app:

            async def watched(manager: JobManager, queues: Iterable[str] | None, worker_id: int) -> Job | None:
                is_waiting = await waiting(app) == ["second"]
                found = await fetch(manager, queues, worker_id)
                if is_waiting and found is None:
                    passed_by.set()
                return found

            monkeypatch.setattr(JobManager, "fetch_job", watched)

            @app.task(name="work", pass_context=True)
            async def task(context: Any, which: str) -> None:
                began.append(which)
                if which == "first":
                    await passed_by.wait()
                else:
                    done.set()

            first, second = (task.configure(queue=queue, lock="one at a time") for queue in queues)
            await first.defer_async(which="first")
            async with taking(app, sorted({*queues})), asyncio.timeout(PATIENCE_S):
                while not began:
                    await asyncio.sleep(0.01)
                await second.defer_async(which="second")
                await done.wait()

    asyncio.run(work())
    assert began == ["first", "second"]


async def waiting(app: App) -> list[str]:
    """Which of the jobs are."""
    rows = await app.connector.execute_query_all_async(
        "SELECT args ->> 'which' AS which FROM procrastinate_jobs WHERE status = 'todo'"
    )
    return [row["which"] for row in rows]
