"""Looks that something overtakes, and plans that are sought until there is one: nothing is issued on old facts."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import event

from sutler.service.deployments.replanning.preparing import PreparedLook
from sutler.service.deployments.replanning.repository import LEAST_PAUSE
from sutler.service.deployments.replanning.verdict import Verdict
from sutler.service.deployments.sharing import repository
from sutler.service.workers.replan_job import Looker
from tests.postgres import Server
from tests.service.builders import changed
from tests.service.faults.looks import looking
from tests.service.faults.replans import ON_THE_STORE, Standing, a_market_at, standing
from tests.service.running import until

NAME: Final = "chat"
DEAR: Final = "too-dear"


@dataclass(frozen=True)
class Overtaken(Looker):
    """What is held is reported after it has looked, and before it stores what it has found."""

    site: Standing | None = None
    held: Sequence[dict[str, Any]] = ()

    async def verdict(self, step: PreparedLook | Verdict) -> Verdict:
        found = await super().verdict(step)
        assert found.plan is not None  # it would issue one
        assert self.site is not None
        await asyncio.to_thread(report, self.site, *self.held)
        return found


def report(site: Standing, *held: dict[str, Any]) -> None:
    answer = site.api.put(f"/v1/deployments/{NAME}/holdings", {"holdings": list(held)})
    assert answer.status_code == 200, answer.text


def a_leased_machine(*, lasts: timedelta) -> dict[str, Any]:
    return {
        **{"provider": "own", "offer_id": "rack", "gpu": "h100-sxm", "gpus": 1, "count": 1},
        **{"price_usd_per_hour": 1.0, "expires_at": (datetime.now(UTC) + lasts).isoformat()},
    }


def deployment_id(site: Standing, name: str = NAME) -> UUID:
    found: UUID = site.scene.rows("SELECT id FROM deployment WHERE name = %s", name)[0][0]
    return found


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Standing]:
    """A deployment with a plan; its worker has gone."""
    with standing(postgres, NAME, SUTLER_CHANGES_PER_MINUTE="1000") as made:
        worker = made.scene.worker()
        made.until_moved({NAME: 0})
        assert worker.stop() == 0
        yield made


async def look_overtaken(site: Standing, *held: dict[str, Any]) -> bool:
    """By a report of these machines; whether it is due again."""
    async with looking(site.scene) as looks:
        looker = looks.looker
        parts = (looker.engine, looker.queue, looker.market, looker.tenants, looker.solvers, looker.now)
        await Overtaken(*parts, site=site, held=held).look(deployment_id(site))
        looks.clock.ahead = LEAST_PAUSE
        return await looks.is_due(deployment_id(site))


def test_a_look_that_a_report_of_holdings_overtakes_issues_nothing_and_is_due_again(site: Standing) -> None:
    report(site, a_leased_machine(lasts=timedelta(hours=5)))
    before = site.revisions
    site.drift()
    assert asyncio.run(look_overtaken(site))
    assert site.revisions == before
    worker = site.scene.worker()
    site.until_moved(before)
    assert worker.stop() == 0
    site.assert_whole()


async def reads_of_other_deployments(site: Standing) -> list[int]:
    """By three looks of a poll, and by one after something was reported; that poll's looks have a moment."""
    read: list[int] = []
    async with looking(site.scene) as looks:

        def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            read[-1] += "FROM public.deployment d JOIN public.plan p" in statement

        event.listen(looks.engine.sync_engine, "before_cursor_execute", count)
        for touched in (True, False, False, False, True):
            if touched:
                await asyncio.to_thread(report, site, a_leased_machine(lasts=timedelta(hours=5)))
            read.append(0)
            await looks.looks(deployment_id(site))
    return read


def test_looks_of_one_poll_read_other_deployments_once(site: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was reported is looked at with all as they are then."""
    monkeypatch.setattr(repository, "MOMENT_S", 1e6)
    assert asyncio.run(reads_of_other_deployments(site)) == [1, 0, 0, 0, 1]


def test_a_lease_that_is_renewed_again_and_again_makes_no_look_void(site: Standing) -> None:
    report(site, a_leased_machine(lasts=timedelta(hours=5)))
    before = site.revisions
    site.drift()
    asyncio.run(look_overtaken(site, a_leased_machine(lasts=timedelta(hours=6))))
    assert site.revisions == {NAME: before[NAME] + 1}


def at_usd_per_hour(price: float) -> dict[str, Any]:
    market = a_market_at("left")
    return changed(market, ("offers", 0, "price_usd_per_hour"), price)


def test_a_first_plan_that_no_market_allowed_is_made_once_one_does(site: Standing) -> None:
    """Without a revision, or an event, for each market that does not."""
    problem = changed(ON_THE_STORE, ("budget_usd_per_hour",), 1.0)
    assert site.api.post("/v1/deployments", {"name": DEAR, "problem": problem}).status_code == 201
    worker = site.scene.worker()
    until(lambda: site.revision(DEAR) == 1)
    assert site.api.get(f"/v1/deployments/{DEAR}/plan").json()["status"] == "infeasible"
    for price in (2.1, 2.0, 1.9):
        site.offer(at_usd_per_hour(price))
        until(site.is_calm)
    found = site.api.get(f"/v1/deployments/{DEAR}").json()
    assert found["watch"]["status"] == "short"
    assert "nothing runs" in found["watch"]["detail"]
    assert site.revision(DEAR) == 1
    site.offer(at_usd_per_hour(0.2))
    until(lambda: site.revision(DEAR) == 2)
    until(site.is_calm)
    assert worker.stop() == 0
    plan = site.api.get(f"/v1/deployments/{DEAR}/plan").json()
    assert (plan["revision"], plan["status"] in ("optimal", "feasible")) == (2, True)
    diff = site.api.get(f"/v1/deployments/{DEAR}/plans/2/diff").json()
    assert [len(diff["start"]), len(diff["stop"]), len(diff["keep"])] == [1, 0, 0]
    [issued, *kept] = site.api.get(f"/v1/deployments/{DEAR}/decisions").json()["items"]
    assert (issued["revision"], {decision["revision"] for decision in kept} <= {None}) == (2, True)
    until(lambda: site.receivers[0].has_heard(DEAR, 2))
    assert sorted(site.receivers[0].ids_by_revision(DEAR)) == [2]  # of plans that were issued
