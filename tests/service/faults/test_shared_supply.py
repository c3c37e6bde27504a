"""Deployments on a market that is too small for all: no machine is in two plans or held twice, whoever is killed."""

import random
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from requests import Response

from tests.postgres import Server
from tests.service.builders import CHAT, a_snapshot, an_offer, changed
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import kill, of
from tests.service.running import until

NAMES: Final = tuple(f"team-{number}" for number in range(8))
MACHINES: Final = range(9)
ROUNDS: Final = 6
ON_THE_STORE: Final = changed(CHAT, ("market",), {})
POLICY: Final = {"carry_out_s": 3_600, "cooldown_s": 0}
_CURRENT: Final = """
    SELECT d.name, r ->> 'offer_id', (r ->> 'count')::int FROM deployment d JOIN plan p ON p.id = d.plan_id
    CROSS JOIN jsonb_array_elements(p.document::jsonb -> 'rentals') r
"""


def a_market(machines: Collection[int]) -> dict[str, Any]:
    """As many hosts with a machine each, each of its own price, seen now."""
    offers = [
        an_offer(
            provider="acme",
            offer_id=str(number),
            machine_id=f"host-{number}",
            gpu="h100-sxm",
            gpus=1,
            available=1,
            price_usd_per_hour=2.0 + number / 100,
        )
        for number in machines
    ]
    return {**a_snapshot(*offers), "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Standing]:
    """A market, and no deployment yet."""
    with standing(postgres, SUTLER_CHANGES_PER_MINUTE="10000") as made:
        made.offer(a_market(MACHINES))
        yield made


def planned(site: Standing) -> dict[int, list[str]]:
    """Who plans on which machine, by its number."""
    found: dict[int, list[str]] = {}
    for name, offer_id, count in site.scene.rows(_CURRENT):
        assert count == 1
        found.setdefault(int(offer_id.removeprefix("acme/")), []).append(name)
    return found


def asks(site: Standing, name: str, *, machines: int) -> None:
    """The deployment wants as much as so many machines carry."""
    problem = changed(ON_THE_STORE, ("models", 0, "workloads", 0, "rate_rps"), 8.0 * machines)
    answer = site.api.put(f"/v1/deployments/{name}", {"problem": problem, "policy": POLICY})
    assert answer.ok, answer.text


def test_no_machine_is_in_two_current_plans_at_any_time(site: Standing) -> None:
    """All plan at once, again and again, with more and with less, and are made anew; workers are killed meanwhile."""
    workers = [site.scene.worker() for _ in range(3)]
    seen, done, draw = [], threading.Event(), random.Random(5)

    def watch() -> None:
        while not done.is_set():
            seen.append(planned(site))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for number in range(ROUNDS):
            for name in NAMES:
                asks(site, name, machines=draw.choice((1, 2, 3)))
            victim = draw.randrange(len(workers))
            kill(of(workers[victim]))
            workers[victim] = site.scene.worker()
            if number % 2:
                assert site.api.delete(f"/v1/deployments/{draw.choice(NAMES)}").ok
        until(site.is_calm)
    finally:
        done.set()
        watching.join()
    assert len(seen) > 100
    assert max(map(len, seen)) >= len(MACHINES) - 2
    assert [one for one in seen if any(len(names) > 1 for names in one.values())] == []


def test_who_is_left_without_a_machine_is_told_that_others_have_them(site: Standing) -> None:
    for name in NAMES:
        asks(site, name, machines=3)
    until(site.is_calm)
    jobs = [site.api.get("/v1/plans", params={"deployment": name, "limit": 1}).json()["items"] for name in NAMES]
    plans = [site.api.get(newest["url"]).json() for [newest] in jobs]
    without = [plan for plan in plans if plan["status"] == "infeasible"]
    assert without
    assert all(any("other deployments of this service" in note for note in plan["notes"]) for plan in without)


def test_a_machine_that_one_deployment_holds_no_other_can_report(site: Standing) -> None:
    def report(name: str, *machines: str) -> Response:
        one = {"provider": "file", "gpu": "h100-sxm", "gpus": 1, "price_usd_per_hour": 2.0}
        holdings = [{**one, "offer_id": f"acme/{number}"} for number in machines]
        return site.api.put(f"/v1/deployments/{name}/holdings", {"holdings": holdings})

    assert report(NAMES[0], "0").status_code == 200
    refused = report(NAMES[1], "1", "0")
    assert refused.status_code == 409
    assert f"file acme/0 (on_demand) is one machine, and {NAMES[0]} reports it as rented" in refused.json()["detail"]
    assert site.api.get(f"/v1/deployments/{NAMES[1]}/holdings").json()["holdings"] == []
    assert report(NAMES[0], "0").status_code == 200
    assert report(NAMES[0]).status_code == 200
    assert report(NAMES[1], "1", "0").status_code == 200
    statuses: list[int] = []
    reports = [
        threading.Thread(target=lambda name=name: statuses.append(report(name, "2").status_code)) for name in NAMES
    ]
    for one in reports:
        one.start()
    for one in reports:
        one.join()
    assert Counter(statuses) == {200: 1, 409: len(NAMES) - 1}
