"""Several problems on one market: who gets which machines. An H100 serves 20 requests/s, an RTX 4090 four."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.sharing import Case, a_case, first_come, outcomes
from sutler.service.documents.market import OfferDocument
from sutler.solver.clearing import Claimant, Clearing, Fleet, Machines, clear
from sutler.solver.problem import Offer, Problem
from tests.looped import for_each
from tests.service.deployments.replanning.builders import an_offer

LARGE, SMALL = {"h100-sxm": 20.0}, {"rtx-4090": 4.0}
MORE = 0.05


def a_machine(name: str, gpu: str, usd: float) -> OfferDocument:
    return an_offer(name, gpu=gpu, available=1, machine_id=name, price_usd_per_hour=usd)


def a_model(name: str, rps: float, rates: dict[str, float]) -> dict[str, Any]:
    workload = {"name": "chat", "input_tokens": 500, "output_tokens": 250, "rate_rps": rps}
    return {
        "model": {"name": name, "model": "llama-3.1-8b", "workloads": [workload]},
        "table": [
            {"model": name, "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": {"chat": rate}}
            for gpu, rate in rates.items()
        ],
    }


def problems(case: Case) -> list[Problem]:
    return [case.problem([model]) for model in case.models]


def a_fleet(usd: float, *machines: str) -> Fleet:
    return Fleet(tuple(Machines(("acme", name, "on_demand"), 1, 1, name) for name in machines), usd)


def names(fleet: Fleet | None) -> set[str]:
    return set() if fleet is None else {machines.key[1] for machines in fleet.machines}


# One H100 for 2 $/h and three RTX 4090 for 0.9 $/h each: ten requests/s on the H100, or on three small ones for 2.7.
ONE_LARGE = (a_machine("large", "h100-sxm", 2.0), *(a_machine(f"small-{n}", "rtx-4090", 0.9) for n in range(3)))
PLANNED = a_fleet(2.0, "large")
SMALL_ONES = {"small-0", "small-1", "small-2"}


def test_a_machine_goes_to_the_one_that_has_no_other() -> None:
    first, second = problems(Case((a_model("a", 10, {**LARGE, **SMALL}), a_model("b", 10, LARGE)), ONE_LARGE))
    cleared = clear(Clearing((Claimant(first, PLANNED), Claimant(second))))
    assert list(map(names, cleared)) == [SMALL_ONES, {"large"}]


def test_the_higher_priority_comes_first_though_others_are_left_without() -> None:
    first, second = problems(Case((a_model("a", 10, {**LARGE, **SMALL}), a_model("b", 10, LARGE)), ONE_LARGE))
    cleared = clear(Clearing((Claimant(first, priority=1), Claimant(second, PLANNED))))
    assert list(map(names, cleared)) == [{"large"}, set()]


def test_nobody_loses_its_machines_to_one_that_is_only_cheaper_to_serve() -> None:
    """Two H100 serve the first, or one of them the second at half the cost."""
    market = tuple(a_machine(f"large-{n}", "h100-sxm", 2.0) for n in range(2))
    first, second = problems(Case((a_model("a", 30, LARGE), a_model("b", 10, LARGE)), market))
    planned = a_fleet(4.0, "large-0", "large-1")
    assert clear(Clearing((Claimant(first, planned), Claimant(second)))) == (planned, None)


def test_nobody_moves_where_nobody_is_in_anothers_way() -> None:
    """Though the first could do better by itself: that is for its own looks."""
    [first, second] = problems(Case((a_model("a", 10, {**LARGE, **SMALL}), a_model("b", 3, SMALL)), ONE_LARGE))
    dearer, one = a_fleet(2.7, *sorted(SMALL_ONES)), a_fleet(0.9, "small-0")
    assert clear(Clearing((Claimant(first, dearer),))) == (dearer,)
    assert clear(Clearing((Claimant(first, PLANNED), Claimant(second, one)))) == (PLANNED, one)


def test_who_lacks_a_part_gets_it_where_there_is_something_left() -> None:
    [first] = problems(Case((a_model("a", 10, {**LARGE, **SMALL}),), ONE_LARGE))
    part = replace(a_fleet(0.9, "small-0"), lack_fraction=0.6)
    [found] = clear(Clearing((Claimant(first, part),)))
    assert names(found) == {"large"}


def test_what_is_held_costs_nothing_more_and_goes_to_nobody() -> None:
    """The first holds one of the small ones, and needs two more for less than the large one costs."""
    first, second = problems(Case((a_model("a", 10, {**LARGE, **SMALL}), a_model("b", 10, LARGE)), ONE_LARGE))
    held = replace(next(offer for offer in first.offers if offer.offer_id == "small-0"), machine_id=None, held=True)
    first = replace(first, offers=(held, *(offer for offer in first.offers if offer.offer_id != "small-0")))
    cleared = clear(Clearing((Claimant(first, PLANNED), Claimant(second))))
    assert list(map(names, cleared)) == [SMALL_ONES - {"small-0"}, {"large"}]
    assert cleared[0] is not None
    assert cleared[0].usd_per_hour == pytest.approx(1.8)


@pytest.mark.parametrize(("usd", "served"), [(4.0, 2), (3.0, 1), (1.0, 0)])
def test_no_more_is_spent_than_is_in_a_purse(usd: float, served: int) -> None:
    both = a_machine("one", "h100-sxm", 2.0), a_machine("two", "h100-sxm", 2.0)
    asked = problems(Case((a_model("a", 10, LARGE), a_model("b", 10, LARGE)), both))
    cleared = clear(Clearing(tuple(Claimant(problem, purse="team") for problem in asked), {"team": usd}))
    assert sum(fleet is not None for fleet in cleared) == served


def test_slices_of_a_machine_are_not_given_out_beyond_its_gpus() -> None:
    slices = [
        an_offer(str(gpus), gpus=gpus, available=1, machine_id="host", price_usd_per_hour=2.0 * gpus)
        for gpus in (1, 2, 3, 4)
    ]
    asked = problems(Case(tuple(a_model(name, 30, LARGE) for name in "abc"), tuple(slices)))
    cleared = clear(Clearing(tuple(map(Claimant, asked))))
    gpus = [one.gpus for fleet in cleared if fleet is not None for one in fleet.machines]
    assert sum(fleet is not None for fleet in cleared) >= 1
    assert sum(gpus) <= 4


@for_each("seed", range(8), quick=1)
def test_all_together_cost_hardly_more_than_one_plan_for_all(seed: int) -> None:
    """`outcomes` fails where one is left short whom a joint plan serves."""
    case = a_case(4, 3.0, seed)
    before, after = outcomes(case)
    assert after.served >= before.served
    assert after.usd <= after.joint_usd * (1 + MORE)


@for_each("seed", range(4), quick=1)
def test_no_machine_is_given_twice_and_what_was_cleared_stays(seed: int) -> None:
    case = a_case(5, 2.0, seed)
    asked = problems(case)
    cleared = clear(Clearing(tuple(map(Claimant, asked, first_come(case)))))
    rented = Counter(name for fleet in cleared for name in names(fleet))
    assert not rented or max(rented.values()) == 1
    assert clear(Clearing(tuple(map(Claimant, asked, cleared)))) == cleared


def test_machines_of_ones_own_are_no_matter_of_others() -> None:
    stock = an_offer("stock", available=1, price_usd_per_hour=2.0)
    asked = problems(Case(tuple(a_model(name, 10, LARGE) for name in "ab"), (stock,)))
    own = {("acme", "stock", "on_demand")}
    for stated, served in ((own, 2), ((), 1)):
        cleared = clear(Clearing(tuple(Claimant(problem, own=stated) for problem in asked)))
        assert sum(fleet is not None for fleet in cleared) == served


def test_offers_of_many_machines_are_shared_by_number() -> None:
    many = an_offer("many", available=3, price_usd_per_hour=2.0)
    asked = problems(Case(tuple(a_model(name, rps, LARGE) for name, rps in (("a", 30), ("b", 30))), (many,)))
    cleared = clear(Clearing(tuple(map(Claimant, asked))))
    counts = sorted(sum(one.count for one in fleet.machines) for fleet in cleared if fleet is not None)
    assert counts == [2]
    offers: list[Offer] = [offer for problem in asked for offer in problem.offers]
    assert {offer.available for offer in offers} == {3}


def test_every_problem_keeps_its_own_budget() -> None:
    """The second would have to take the small ones for 2.7 where the first kept the large one."""
    first, second = problems(
        Case((a_model("a", 10, {**LARGE, **SMALL}), a_model("b", 10, {**LARGE, **SMALL})), ONE_LARGE)
    )
    second = replace(second, budget_usd_per_hour=2.2)
    assert list(map(names, clear(Clearing((Claimant(first, PLANNED), Claimant(second)))))) == [SMALL_ONES, {"large"}]


def test_what_serves_the_most_is_shared_with_what_serves_a_load() -> None:
    """Within its budget the first could have both; one of them serves the second."""
    both = a_machine("one", "h100-sxm", 2.0), a_machine("two", "h100-sxm", 2.0)
    first, second = problems(Case((a_model("a", 10, LARGE), a_model("b", 10, LARGE)), both))
    first = replace(first, objective=replace(first.objective, kind="max_throughput"), budget_usd_per_hour=5.0)
    cleared = clear(Clearing((Claimant(first, a_fleet(4.0, "one", "two")), Claimant(second))))
    assert sorted(len(names(fleet)) for fleet in cleared) == [1, 1]
