"""Deployments that want the same machines or the same money: who gets it, and that nobody gets it twice."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from benchmarks.sharing import a_case
from tests.postgres import Server
from tests.service.builders import a_snapshot, an_offer
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import kill, of
from tests.service.running import until

POLICY: Final = {"carry_out_s": 3_600, "cooldown_s": 0}
MORE: Final = 0.05  # than one plan for all
_RENTALS: Final = """
    SELECT d.name, r ->> 'offer_id', p.cost_usd_per_hour FROM deployment d JOIN plan p ON p.id = d.plan_id
    CROSS JOIN jsonb_array_elements(p.document::jsonb -> 'rentals') r
"""
_HISTORY: Final = """
    SELECT p.finished_at, d.name, p.cost_usd_per_hour,
        (SELECT array_agg(r ->> 'offer_id') FROM jsonb_array_elements(p.document::jsonb -> 'rentals') r)
    FROM plan p JOIN deployment d ON d.id = p.deployment_id
    WHERE p.status IN ('optimal', 'feasible') OR p.revision = 1 OR EXISTS (
        SELECT 1 FROM decision c WHERE c.deployment_id = p.deployment_id AND c.revision = p.revision
        AND c.drifts::text LIKE '%%"shared"%%')
    ORDER BY p.finished_at
"""


def a_problem(rps: float, rates_rps: Mapping[str, float]) -> dict[str, Any]:
    """The least cost of so many requests/s, with so many from each GPU."""
    rows = [
        {"model": "chat", "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": {"question": rate}}
        for gpu, rate in rates_rps.items()
    ]
    workload = {"name": "question", "input_tokens": 500, "output_tokens": 250, "rate_rps": rps}
    return {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "llama-3.1-8b", "workloads": [workload]}],
        "throughput": {"only": True, "table": rows},
    }


def a_market(*machines: tuple[str, float]) -> dict[str, Any]:
    """A host for each, with one GPU of its own price; offers are numbered."""
    offers = [
        an_offer(offer_id=str(n), machine_id=f"host-{n}", gpu=gpu, gpus=1, price_usd_per_hour=usd, provider="acme")
        for n, (gpu, usd) in enumerate(machines)
    ]
    return {**a_snapshot(*offers), "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}


def asks(site: Standing, name: str, problem: dict[str, Any], **policy: Any) -> None:
    answer = site.api.put(f"/v1/deployments/{name}", {"problem": problem, "policy": {**POLICY, **policy}})
    assert answer.ok, answer.text


def rentals(site: Standing) -> dict[str, list[str]]:
    """The machines of all current plans, by deployment."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, offer_id, _ in site.scene.rows(_RENTALS):
        found[name].append(offer_id.removeprefix("acme/"))
    return {name: sorted(machines) for name, machines in found.items()}


def reasons(site: Standing, name: str) -> str:
    return " | ".join(one["reason"] for one in site.api.get(f"/v1/deployments/{name}/decisions").json()["items"])


@pytest.fixture(scope="module")
def world(postgres: Server) -> Iterator[Standing]:
    with standing(postgres, SUTLER_CHANGES_PER_MINUTE="10000") as made:
        made.scene.worker()
        yield made


@pytest.fixture
def site(world: Standing) -> Iterator[Standing]:
    yield world
    for one in world.api.get("/v1/deployments").json()["items"]:
        assert world.api.delete(f"/v1/deployments/{one['name']}").ok


LARGE: Final = {"h100-sxm": 20.0}
EITHER: Final = {"h100-sxm": 20.0, "rtx-4090": 4.0}


def test_a_machine_goes_to_the_one_that_has_no_other(site: Standing) -> None:
    """The first could take it for less, but there is another way for it."""
    site.offer(a_market(("h100-sxm", 2.0), *[("rtx-4090", 0.9)] * 3))
    asks(site, "first", a_problem(10, EITHER))
    until(lambda: rentals(site) == {"first": ["0"]})
    asks(site, "second", a_problem(10, LARGE))
    until(lambda: rentals(site) == {"first": ["1", "2", "3"], "second": ["0"]})
    until(site.is_calm)
    assert "go to second, for which they are worth more" in reasons(site, "first")
    assert (site.revision("first"), site.revision("second")) == (2, 2)


def test_the_higher_priority_takes_what_is_not_held_yet(site: Standing) -> None:
    site.offer(a_market(("h100-sxm", 2.0)))
    asks(site, "low", a_problem(10, LARGE))
    until(lambda: rentals(site) == {"low": ["0"]})
    asks(site, "high", a_problem(10, LARGE), priority=1)
    until(lambda: rentals(site) == {"high": ["0"]})
    until(site.is_calm)
    assert "go to high (priority 1, here 0)" in reasons(site, "low")
    assert site.api.get("/v1/deployments/low").json()["watch"]["status"] == "short"


def test_what_is_held_is_taken_from_nobody(site: Standing) -> None:
    site.offer(a_market(("h100-sxm", 2.0), ("h100-sxm", 3.0)))
    asks(site, "low", a_problem(30, LARGE))
    until(lambda: rentals(site) == {"low": ["0", "1"]})
    held = {"provider": "file", "gpu": "h100-sxm", "gpus": 1, "price_usd_per_hour": 2.0, "offer_id": "acme/0"}
    assert site.api.put("/v1/deployments/low/holdings", {"holdings": [held]}).ok
    asks(site, "high", a_problem(30, LARGE), priority=1)
    asks(site, "higher", a_problem(10, LARGE), priority=2)
    until(lambda: rentals(site).get("higher") == ["1"])
    until(site.is_calm)
    assert rentals(site) == {"low": ["0"], "higher": ["1"]}


def test_a_shared_budget_is_spent_once(site: Standing) -> None:
    budget = {"name": "team", "usd_per_hour": 5.0}
    site.offer(a_market(*[("h100-sxm", 2.0)] * 4))
    asks(site, "one", a_problem(30, LARGE), budget=budget)
    until(lambda: len(rentals(site).get("one", ())) == 2)
    asks(site, "two", a_problem(10, LARGE), budget=budget)
    until(lambda: site.revision("two") >= 1)
    until(site.is_calm)
    assert set(rentals(site)) == {"one"}
    asks(site, "two", a_problem(10, LARGE), budget=budget, priority=1)
    until(lambda: len(rentals(site).get("two", ())) == 1)
    until(site.is_calm)
    assert_once(site, budget_usd_per_hour=5.0)
    assert site.api.post("/v1/deployments/two/holdings/ack", {}).ok
    asks(site, "two", a_problem(10, LARGE), budget={**budget, "usd_per_hour": 1.0}, priority=1)
    until(lambda: "is exceeded" in site.api.get("/v1/deployments/two").json()["watch"]["budget"])
    assert len(rentals(site)["two"]) == 1


def cost_usd_per_hour(site: Standing) -> float:
    return sum({name: float(usd) for name, _, usd in site.scene.rows(_RENTALS)}.values())


# Markets that have a plan for all, on which the first to come would leave one without, or cost clearly more.
@pytest.mark.parametrize(("count", "machines_each", "seed"), [(2, 4.0, 7), (8, 3.0, 1), (12, 3.0, 0)])
def test_all_together_cost_hardly_more_than_one_plan_for_all_whoever_is_killed(
    postgres: Server, count: int, machines_each: float, seed: int
) -> None:
    case = a_case(count, machines_each, seed)
    names = [model["model"]["name"] for model in case.models]
    joint_usd = case.joint_usd([True] * count)
    assert joint_usd is not None
    with standing(postgres, SUTLER_CHANGES_PER_MINUTE="10000") as site:
        site.offer(a_market(*[(offer.gpu, offer.price_usd_per_hour) for offer in case.offers]))
        workers = [site.scene.worker() for _ in range(2)]
        for number, (name, model) in enumerate(zip(names, case.models, strict=True)):
            problem = {
                "objective": {"kind": "min_cost"},
                "models": [model["model"]],
                "throughput": {"only": True, "table": model["table"]},
            }
            asks(site, name, problem)
            if number % 5 == 1:
                kill(of(workers[number % 2]))
                workers[number % 2] = site.scene.worker()

        def is_near() -> bool:
            return set(rentals(site)) == set(names) and cost_usd_per_hour(site) <= joint_usd * (1 + MORE)

        until(is_near, patience_s=360)
        until(site.is_calm)
        assert is_near()
        assert_once(site)
        assert (1 if count < 20 else 2) <= max(site.revision(name) for name in names) <= 5


def assert_once(site: Standing, *, budget_usd_per_hour: float = float("inf")) -> None:
    """At no time in the store's history was a machine in two current plans, or did they cost more than that."""
    current: dict[str, set[str]] = {}
    usd: dict[str, float] = {}
    rows = site.scene.rows(_HISTORY)
    for number, (at, name, cost, machines) in enumerate(rows):
        current[name], usd[name] = set(machines or ()), cost or 0.0
        if number + 1 == len(rows) or rows[number + 1][0] > at:
            assert sum(map(len, current.values())) == len(set().union(*current.values())), (at, current)
            assert sum(usd.values()) <= budget_usd_per_hour * (1 + 1e-6)
    assert rows
