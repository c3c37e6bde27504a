"""What a worker does again and again goes on, whatever comes of it."""

import asyncio

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.workers.worker import every
from tests.service.web.stored import opened


def test_an_error_of_ours_ends_nothing_and_is_told(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> int:
        done = asyncio.Event()
        times = 0

        async def work(connection: AsyncConnection) -> None:
            nonlocal times
            times += 1
            assert await connection.scalar(text("SELECT 1")) == 1
            if times < 3:
                raise ValueError(f"of deployment {times}")
            done.set()

        async with opened(engine) as store:
            repeating = asyncio.ensure_future(every(store, 0.01, work))
            await done.wait()
            repeating.cancel()
            await asyncio.wait({repeating})
        return times

    assert asyncio.run(run()) >= 3
    told = [record for record in caplog.records if record.exc_info is not None]
    assert [str(record.exc_info[1]) for record in told if record.exc_info] == ["of deployment 1", "of deployment 2"]
    assert all("work: a defect of sutler" in record.message for record in told)
