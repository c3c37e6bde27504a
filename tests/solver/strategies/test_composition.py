"""GPUs in equal numbers of every type."""

from dataclasses import replace

import pytest

from sutler.solver.problem import Limits, ObjectiveKind
from sutler.solver.strategies import composition
from sutler.solver.verify import verify
from tests.builders import a_problem, an_offer, appendix_c, measured
from tests.solver.planning_builders import about, rented_gpus
from tests.solver.strategies.strategy_builders import plenty_of_time, slices_case


def test_the_budget_buys_as_many_of_each_type() -> None:
    # One of each of t1, t2, t3 costs 4 + 2 + 2 = 8 $/h, the budget. t3 does w2 alone, in 20 / 0.5 = 40 s, and then
    # helps t1 and t2 with w1: 80 = (1 + 0.9) T + 0.3 (T - 40).
    planned = composition.plan(appendix_c(), plenty_of_time)
    assert planned.plan.value == about((80 + 0.3 * 40) / (1 + 0.9 + 0.3))
    assert rented_gpus(planned.plan) == {"t1": 1, "t2": 1, "t3": 1}
    assert verify(appendix_c(), planned.plan) == ()


@pytest.mark.parametrize(
    ("budget", "most"),
    [
        (4.21, 0),  # one of each is 0.34 + 1.19 + 2.69 = 4.22 $/h
        (4.22, 1),
        (12.65, 2),
        (12.66, 3),
    ],
)
def test_k_is_the_largest_that_the_budget_pays_for(budget: float, most: int) -> None:
    assert composition.most_affordable(slices_case("max_throughput", budget_usd_per_hour=budget)) == most


def test_a_type_that_runs_out_no_longer_counts() -> None:
    # One a at 1 $/h and many b at 2 $/h: 9 $/h buy the a and four b.
    problem = a_problem(
        offers=[an_offer("a", price=1.0), an_offer("b", price=2.0, available=9)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1.0})],
        budget_usd_per_hour=9.0,
    )
    assert composition.most_affordable(problem) == 4
    assert rented_gpus(composition.plan(problem, plenty_of_time).plan) == {"a": 1, "b": 4}
    capped = replace(problem, limits=Limits(max_gpus={"b": 2}))
    assert rented_gpus(composition.plan(capped, plenty_of_time).plan) == {"a": 1, "b": 2}


def test_machines_are_bought_whole_and_cheapest_first() -> None:
    # a comes in pairs at 3 $/h and alone at 2 $/h, b alone at 1 $/h. k = 3: a pair, one a, three b, 3 + 2 + 3 $/h.
    problem = a_problem(
        offers=[
            an_offer("a", 2, price=3.0, available=5),
            an_offer("a", 1, price=2.0, available=5),
            an_offer("b", price=1.0, available=9),
        ],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1.0})],
        budget_usd_per_hour=8.0,
    )
    assert composition.most_affordable(problem) == 3
    assert composition.most_affordable(replace(problem, budget_usd_per_hour=7.9)) == 2


def test_slices_of_one_machine_are_counted_once() -> None:
    slices = [
        an_offer("a", len(cards), price=1.0 * len(cards), offer_id=str(cards), machine_id="m", gpu_ids=cards)
        for cards in [(0, 1), (0,), (1,)]
    ]
    problem = a_problem(
        offers=[*slices, an_offer("b", available=4)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1.0})],
        budget_usd_per_hour=100.0,
    )
    assert composition.uniform(problem, 9) == {"a": 2, "b": 4}


def test_a_budget_too_small_for_one_of_each_is_infeasible_and_says_what_is_needed() -> None:
    problem = slices_case("max_throughput", budget_usd_per_hour=4.0)
    plan = composition.plan(problem, plenty_of_time).plan
    assert plan.status == "infeasible"
    assert [(c.constraint, round(c.needed, 2), c.available) for c in plan.conflicts] == [("budget", 4.22, 4.0)]
    assert verify(problem, plan) == ()


def test_the_least_cost_is_that_of_the_smallest_composition_that_carries_the_load() -> None:
    # Of a mean request each carries 1 / sum(share / rate), the GPUs in all their best split a little more: one of
    # each falls short of 40 requests/s, two carry them and cost 2 * 4.22 $/h.
    planned = composition.plan(slices_case("min_cost"), plenty_of_time)
    assert rented_gpus(planned.plan) == {"rtx4090": 2, "a100": 2, "h100": 2}
    assert planned.plan.value == about(2 * 4.22)
    assert verify(planned.problem, planned.plan) == ()


@pytest.mark.parametrize("objective", ["min_cost", "min_power"])
def test_a_load_beyond_all_that_is_for_rent_is_infeasible(objective: ObjectiveKind) -> None:
    problem = slices_case(objective)
    problem = replace(problem, offers=tuple(replace(offer, available=1) for offer in problem.offers))
    plan = composition.plan(problem, plenty_of_time).plan
    assert plan.status == "infeasible"
    assert verify(problem, plan) == ()
