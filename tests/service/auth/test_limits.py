"""How much of a key is taken: reads per process, changes in all of them together."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit, repository
from sutler.service.auth.limits import MOST_BUCKETS, Limits, change_limits, read_limits
from sutler.service.db.asynchronous import begun
from sutler.service.web.caller import LOCAL, Caller, Principal
from sutler.service.web.errors import TooManyRequestsError
from tests.service.auth.builders import SETTINGS, Process, a_process, run

ME, OTHER = Principal("key/me", "plan"), Principal("key/other", "plan")
THREE_A_MINUTE = replace(SETTINGS, changes_per_minute=3)


def reads_taken(limits: Limits, actor: str, *, now_s: float, most: int = 100) -> int:
    """How many reads are let through at once."""
    for taken in range(most):
        try:
            limits.take(actor, now_s=now_s)
        except TooManyRequestsError:
            return taken
    return most


def test_after_a_pause_twice_the_rate_is_let_through_at_once() -> None:
    limits = read_limits(10.0)
    assert reads_taken(limits, "me", now_s=0.0) == 20
    assert reads_taken(limits, "me", now_s=0.0) == 0


def test_the_rate_is_let_through_all_the_time() -> None:
    limits = read_limits(10.0)
    reads_taken(limits, "me", now_s=0.0)
    assert [reads_taken(limits, "me", now_s=float(second)) for second in range(1, 5)] == [10, 10, 10, 10]


def test_changes_that_are_asked_for_are_let_through_by_the_minute() -> None:
    limits = change_limits(6)
    assert reads_taken(limits, "me", now_s=0.0) == 12
    assert reads_taken(limits, "me", now_s=60.0) == 6
    with pytest.raises(TooManyRequestsError, match="6 changes per minute, refused ones included"):
        limits.take("me", now_s=60.0)


def test_one_key_takes_nothing_from_another() -> None:
    limits = read_limits(10.0)
    reads_taken(limits, "me", now_s=0.0)
    assert reads_taken(limits, "other", now_s=0.0) == 20


def test_the_refusal_says_when_to_come_back_and_that_is_true() -> None:
    limits = read_limits(0.5)
    assert reads_taken(limits, "me", now_s=0.0) == 1
    with pytest.raises(TooManyRequestsError, match=r"0\.5 times per second: slow down") as raised:
        limits.take("me", now_s=1.0)
    assert raised.value.retry_after_s == pytest.approx(1.0)
    limits.take("me", now_s=2.0)


@given(st.lists(st.floats(0.0, 5.0), max_size=300), st.floats(0.1, 50.0))
def test_no_pattern_of_reads_gets_more_than_the_rate_and_the_burst(pauses_s: list[float], rate: float) -> None:
    limits, now_s, taken = read_limits(rate), 0.0, 0
    for pause_s in pauses_s:
        now_s += pause_s
        taken += reads_taken(limits, "me", now_s=now_s, most=1)
    assert taken <= max(1.0, 2 * rate) + rate * now_s + 1e-6


def test_the_number_of_keys_that_are_followed_is_bounded() -> None:
    limits = read_limits(10.0)
    for number in range(MOST_BUCKETS + 100):
        limits.take(f"key/{number}", now_s=0.0)
    assert len(limits) == MOST_BUCKETS


def test_a_key_that_reads_too_often_is_refused(engine: Engine) -> None:
    async def tried() -> None:
        async with a_process(engine, settings=replace(SETTINGS, reads_per_second=5.0)) as process:
            for _ in range(10):
                process.authenticator.check(ME, reads=True)
            process.authenticator.check(OTHER, reads=True)
            with pytest.raises(TooManyRequestsError):
                process.authenticator.check(ME, reads=True)
            process.clock.now_s += 0.2
            process.authenticator.check(ME, reads=True)

    run(tried())


def test_who_needs_no_key_is_not_limited(engine: Engine) -> None:
    async def tried() -> None:
        settings = replace(SETTINGS, reads_per_second=1.0, changes_per_minute=1)
        async with a_process(engine, settings=settings, needs_key=False) as process:
            for _ in range(10):
                process.authenticator.check(LOCAL, reads=True)
                await changes(process, LOCAL)
            assert await process.run("SELECT * FROM key_use") == []

    run(tried())


def test_a_key_that_changes_too_much_is_refused_until_the_minute_is_over(engine: Engine) -> None:
    async def tried() -> TooManyRequestsError:
        async with a_process(engine, settings=THREE_A_MINUTE) as process:
            await in_a_fresh_minute(process)
            for _ in range(3):
                await changes(process, ME)
            await changes(process, OTHER)
            with pytest.raises(TooManyRequestsError, match="3 changes per minute") as raised:
                await changes(process, ME)
            await process.run("UPDATE key_use SET minute = minute - interval '1 minute'")
            await changes(process, ME)
            return raised.value

    refusal = run(tried())
    assert refusal.retry_after_s is not None
    assert 0 < refusal.retry_after_s <= 60


def test_all_processes_count_changes_together(engine: Engine) -> None:
    async def tried() -> list[BaseException | None]:
        async with (
            a_process(engine, settings=THREE_A_MINUTE) as here,
            a_process(engine, settings=THREE_A_MINUTE) as there,
        ):
            await in_a_fresh_minute(here)
            attempts = [changes(process, ME) for process in (here, there) for _ in range(4)]
            return await asyncio.gather(*attempts, return_exceptions=True)

    results = run(tried())
    refused = [result for result in results if isinstance(result, TooManyRequestsError)]
    assert len(refused) == 5
    assert results.count(None) == 3


def test_a_change_that_is_undone_is_not_counted(engine: Engine) -> None:
    class UndoneError(Exception):
        pass

    async def tried() -> object:
        async with a_process(engine, settings=THREE_A_MINUTE) as process:
            for _ in range(10):
                with suppress(UndoneError):
                    async with begun(process.engine) as connection:
                        await process.authenticator.count_change(connection, ME)
                        raise UndoneError
            return await process.run("SELECT * FROM key_use")

    assert run(tried()) == []


def test_a_refused_change_leaves_nothing_behind(engine: Engine) -> None:
    async def change_something(process: Process, connection: AsyncConnection) -> None:
        await audit.note(connection, Caller(ME, None), "x", "x")
        await process.authenticator.count_change(connection, ME)

    async def tried() -> tuple[object, object]:
        async with a_process(engine, settings=replace(SETTINGS, changes_per_minute=1)) as process:
            await in_a_fresh_minute(process)
            for _ in range(3):
                with suppress(TooManyRequestsError):
                    async with begun(process.engine) as connection:
                        await change_something(process, connection)
            return await process.run("SELECT count(*) FROM audit"), await process.run("SELECT changes FROM key_use")

    audited, counted = run(tried())
    assert audited == counted == [(1,)]


def test_old_counts_are_forgotten(engine: Engine) -> None:
    async def tried() -> list[tuple[str]]:
        async with a_process(engine) as process:
            await changes(process, OTHER)
            await process.run("UPDATE key_use SET minute = minute - interval '2 hours'")
            await changes(process, ME)
            async with begun(process.engine) as connection:
                await repository.forget_old_use(connection, datetime.now(UTC) - timedelta(hours=1))
            found: list[tuple[str]] = await process.run("SELECT actor FROM key_use")
            return found

    assert run(tried()) == [(ME.actor,)]


async def changes(process: Process, principal: Principal) -> None:
    """One change, as an endpoint makes it."""
    async with begun(process.engine) as connection:
        await process.authenticator.count_change(connection, principal)


async def in_a_fresh_minute(process: Process) -> None:
    """What is counted next falls into one minute of the database's clock."""
    left_s = (await process.run("SELECT 60 - extract(second FROM now())"))[0][0]
    if left_s < 5:
        await asyncio.sleep(float(left_s) + 0.01)
