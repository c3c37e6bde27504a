"""Machines that are taken away: plans count what starts in their place, against trying everything at such prices."""

import random
from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.answer.expected import counted_price
from sutler.solver.plan import Plan
from sutler.solver.problem import Contract, Interruptions, Objective, ObjectiveKind, Offer, Problem
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, a_model, a_problem, a_workload, an_offer, measured, random_problem
from tests.looped import for_each
from tests.solver.brute_force import optimum
from tests.solver.planning_builders import about

HALF_AN_HOUR_S = 1800.0
SPOT = an_offer("a", available=2, price=1.0, offer_id="spot", contract="interruptible")
SURE = an_offer("a", available=2, price=1.5, offer_id="sure")


def counting(problem: Problem, *rates: Interruptions, restart_s: float = HALF_AN_HOUR_S) -> Problem:
    objective = replace(problem.objective, count_interruptions=True, restart_s=restart_s)
    return replace(problem, objective=objective, interruptions=rates)


def spot_at(per_hour: float, **others: Any) -> Interruptions:
    return Interruptions("interruptible", per_hour, **others)


def cheapest(*rates: Interruptions, **others: Any) -> Problem:
    """Two machines carry the load."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w", demand=2.0))],
        offers=[SPOT, SURE],
        rows=[measured("a", {"w": 1.0})],
        **others,
    )
    return counting(problem, *rates)


def rented(plan: Plan) -> dict[str, int]:
    return {rental.offer_id: rental.count for rental in plan.rentals}


def test_the_cheaper_machine_is_left_where_what_starts_in_its_place_costs_more_than_it_saves() -> None:
    often, seldom = solve(cheapest(spot_at(1.1))), solve(cheapest(spot_at(0.9)))
    assert (rented(often), rented(seldom)) == ({"sure": 2}, {"spot": 2})
    assert (seldom.cost_usd_per_hour, seldom.expected_cost_usd_per_hour) == (2.0, about(2.0 * 1.45))
    assert seldom.value == seldom.expected_cost_usd_per_hour
    assert (seldom.interruptions, often.interruptions) == ((spot_at(0.9),), ())
    assert often.expected_cost_usd_per_hour == often.cost_usd_per_hour == 3.0


def test_the_first_rate_that_is_of_a_machine_counts() -> None:
    rates = (spot_at(0.1, gpu="b"), spot_at(0.1, provider="other"), spot_at(2.0, gpu="a"), spot_at(0.0))
    assert rented(solve(cheapest(*rates))) == {"sure": 2}
    assert solve(cheapest(*reversed(rates))).interruptions == (spot_at(0.0),)


def test_without_being_asked_to_nothing_counts() -> None:
    problem = cheapest(spot_at(9.0))
    plan = solve(replace(problem, objective=Objective("min_cost")))
    assert (rented(plan), plan.value, plan.expected_cost_usd_per_hour, plan.interruptions) == (
        {"spot": 2},
        2.0,
        None,
        (),
    )


def test_the_budget_holds_for_what_is_paid_on_average() -> None:
    problem = cheapest(spot_at(0.5), budget_usd_per_hour=2.4)
    assert solve(problem).status == "infeasible"
    plan = solve(replace(problem, budget_usd_per_hour=2.5))
    assert rented(plan) == {"spot": 2}
    (found,) = verify(problem, plan)
    assert found == "expected_cost_usd_per_hour: 2.5, expected at most the budget 2.4"


def test_storage_is_billed_once() -> None:
    problem = cheapest(spot_at(1.0))
    rental = solve(problem).rentals[0]
    stored = replace(rental, storage_usd_per_hour=0.5, price_usd_per_hour=rental.price_usd_per_hour + 0.5)
    assert counted_price(problem, stored) == about(0.5 + 1.0 * 1.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"expected_cost_usd_per_hour": 2.0, "value": 2.0, "bound": 2.0},
        {"expected_cost_usd_per_hour": None},
        {"value": 2.0, "bound": 2.0},
        {"interruptions": ()},
        {"interruptions": (spot_at(0.8),)},
        {"interruptions": (spot_at(0.9), spot_at(0.9))},
    ],
)
def test_each_figure_of_it_is_derived_again(changes: dict[str, Any]) -> None:
    problem = cheapest(spot_at(0.9))
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert verify(problem, replace(plan, **changes))


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(24), quick=2)
def test_it_is_the_optimum_at_these_prices(seed: int, objective: ObjectiveKind) -> None:
    draw = random.Random(seed)
    plain = random_problem(seed, objective)
    kinds_of: tuple[Contract, ...] = ("on_demand", "interruptible")
    contracts = {offer: draw.choice(kinds_of) for offer in plain.offers}
    kinds = sorted({(offer.provider, offer.gpu) for offer in plain.offers})
    rates = [spot_at(draw.uniform(0.0, 2.0), provider=provider, gpu=gpu) for provider, gpu in kinds]
    offers = tuple(replace(offer, contract=contracts[offer]) for offer in plain.offers)
    problem = counting(replace(plain, offers=offers), *rates)

    def price(offer: Offer) -> float:
        times = next(rate.per_hour for rate in rates if (rate.provider, rate.gpu) == (offer.provider, offer.gpu))
        return offer.price_usd_per_hour * (1 + times / 2 * (offer.contract == "interruptible"))

    plan = solve(problem)
    best = optimum(replace(plain, offers=tuple(replace(offer, price_usd_per_hour=price(offer)) for offer in offers)))
    assert verify(problem, plan) == ()
    assert plan.status == ("infeasible" if best.value is None else "optimal")
    if best.value is not None:
        assert plan.value == about(best.value, rel=problem.options.relative_gap)
