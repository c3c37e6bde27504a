"""Many looks at one deployment at the same time, and clocks that jump: each decision is issued once, none is lost."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from random import Random
from typing import Final
from uuid import UUID

import pytest

from tests.postgres import Server
from tests.service.faults.looks import looking
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import results
from tests.service.running import until

NAME: Final = "chat"
AT_ONCE: Final = 30


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Standing]:
    """A deployment with a plan; its worker has gone."""
    with standing(postgres, NAME, SUTLER_CHANGES_PER_MINUTE="1000") as made:
        work(made, {NAME: 0})
        yield made


def work(site: Standing, before: dict[str, int]) -> None:
    """A worker comes, does what there is to do, which is to issue one revision at most, and goes."""
    with at_work(site):
        site.until_moved(before)
        site.assert_whole()


@contextmanager
def at_work(site: Standing) -> Iterator[None]:
    """A worker is there."""
    worker = site.scene.worker()
    yield
    assert worker.stop() == 0


def deployment_id(site: Standing) -> UUID:
    found: UUID = site.scene.rows("SELECT id FROM deployment WHERE name = %s", NAME)[0][0]
    return found


def test_looks_at_the_same_time_issue_one_revision(site: Standing) -> None:
    """Without the queue, which would not let them."""

    async def look() -> None:
        async with looking(site.scene, solvers=2) as looks:
            await looks.looks(deployment_id(site), times=AT_ONCE)

    before = site.revisions
    site.drift()
    asyncio.run(look())
    assert site.revisions == {NAME: before[NAME] + 1}
    work(site, before)


def test_looks_that_are_asked_for_at_the_same_time_are_one_job(site: Standing) -> None:
    async def ask() -> list[bool]:
        async with looking(site.scene) as looks:
            return await asyncio.gather(*(looks.queued(deployment_id(site)) for _ in range(AT_ONCE)))

    before = site.revisions
    site.drift()
    assert sorted(asyncio.run(ask())) == [False] * (AT_ONCE - 1) + [True]
    work(site, before)


def test_plans_that_are_asked_for_at_the_same_time_are_one_plan(site: Standing) -> None:
    """While the market has moved, too: the look and the plan that was asked for are one revision."""
    before = site.revisions
    site.drift()
    answers = results(*[lambda: site.api.post(f"/v1/deployments/{NAME}/replan")] * AT_ONCE)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    work(site, before)


@pytest.mark.parametrize(
    "jump",
    [timedelta(days=30), timedelta(days=-30), timedelta(minutes=4), timedelta(minutes=-4)],
    ids=["far ahead", "far back", "ahead", "back"],
)
def test_a_clock_that_has_jumped_and_is_right_again_loses_no_drift(site: Standing, jump: timedelta) -> None:
    """Neither one that nobody could judge, nor one that comes after a plan that is dated wrongly."""

    async def look() -> bool:
        async with looking(site.scene) as looks:
            looks.clock.ahead = jump
            await looks.looks(deployment_id(site))
            looks.clock.ahead = timedelta()
            return await looks.is_due(deployment_id(site))

    before = site.revisions
    site.drift()
    is_due = asyncio.run(look())
    assert is_due or site.revisions != before
    work(site, before)


def test_a_clock_that_jumps_about_moves_nothing(site: Standing) -> None:
    async def look() -> None:
        async with looking(site.scene) as looks:
            chance = Random(7)
            for _ in range(20):
                looks.clock.ahead = timedelta(days=chance.uniform(-40, 40))
                await looks.looks(deployment_id(site))

    before = site.revisions
    asyncio.run(look())
    assert site.revisions == before
    site.drift()
    work(site, before)


def test_machines_that_are_lost_while_nobody_looks_lead_to_one_revision(site: Standing) -> None:
    """Rented, off the market, lost: all of it is there before the first look, and only the last of it is a drift."""
    site.deploy("rented", {})
    with at_work(site):
        until(lambda: site.revision("rented") == 1)
        until(site.is_calm)
    held = site.api.post("/v1/deployments/rented/holdings/ack").json()["holdings"]
    assert [holding["count"] for holding in held] == [2]
    before = site.revisions
    site.drift()
    lost = [{**held[0], "count": 1}]
    assert site.api.put("/v1/deployments/rented/holdings", lost).status_code == 200
    with at_work(site):
        site.until_moved(before)
        until(lambda: site.revision("rented") == 2)
        until(site.is_calm)
    rentals = site.api.get("/v1/deployments/rented/plan").json()["rentals"]
    assert {(rental["offer_id"], rental["held"]) for rental in rentals} >= {(held[0]["offer_id"], True)}
    assert sum(rental["count"] for rental in rentals) == 2
    site.assert_whole("rented")
