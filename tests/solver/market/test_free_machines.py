"""Machines that cost nothing (owned, prepaid, committed): every objective against trying everything, and laws."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.market.pools import disk_needed_gb
from sutler.solver.plan import Plan
from sutler.solver.problem import Objective, ObjectiveKind, Problem, SolveOptions
from sutler.solver.verify import verify
from tests.builders import (
    OBJECTIVES,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    measured,
    random_estimated_problem,
    random_problem,
)
from tests.looped import for_each
from tests.solver.brute_force import optimum
from tests.solver.test_brute_force import defects

SEEDS = range(10)


def with_free_offers(problem: Problem, seed: int) -> Problem:
    """Most often some of the offers cost nothing, now and then all; at times there is no money for the others."""
    draw = Random(seed + 7 * 10**6)
    share = draw.choice([0.3, 0.6, 0.6, 1.0])
    offers = [replace(o, price_usd_per_hour=0.0) if draw.random() < share else o for o in problem.offers]
    budget = 0.0 if draw.random() < 0.3 else problem.budget_usd_per_hour
    return replace(problem, offers=tuple(offers), budget_usd_per_hour=budget)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", SEEDS, quick=6)
def test_the_exact_method_finds_the_optimum_where_some_machines_are_free(seed: int, objective: ObjectiveKind) -> None:
    problem = with_free_offers(random_problem(seed, objective), seed)
    plan = solve(problem)
    assert defects(problem, plan, optimum(problem)) == []
    if plan.cost_usd_per_hour == 0:
        assert plan.usd_per_million_tokens == 0


@pytest.mark.parametrize("objective", ["max_throughput", "min_makespan"])
@for_each("seed", SEEDS[:8], quick=2)
def test_the_binary_search_finds_it_too(seed: int, objective: ObjectiveKind) -> None:
    problem = with_free_offers(random_problem(seed, objective), seed)
    problem = replace(problem, options=SolveOptions(method="binary_search"))
    assert defects(problem, solve(problem), optimum(problem)) == []


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(1, 5))
def test_plans_on_estimated_rates_hold_where_some_machines_are_free(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_estimated_problem(seed, objective), options=SolveOptions(alternatives=False))
    problem = with_free_offers(problem, seed)
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.status in ("optimal", "infeasible")


def a_free_and_a_dear_machine(objective: ObjectiveKind = "min_cost", **others: Any) -> Problem:
    """A free one that carries 2 req/s, and a faster one for money; 1 req/s is asked for."""
    return a_problem(
        objective=objective,
        offers=[an_offer("a", price=0.0), an_offer("b", price=5.0)],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 9.0})],
        models=[a_model(a_workload(demand=1.0))],
        **others,
    )


def figures(plan: Plan) -> tuple[object, ...]:
    return plan.status, plan.value, plan.bound, plan.relative_gap, plan.cost_usd_per_hour, plan.usd_per_million_tokens


def test_a_load_that_free_machines_carry_costs_nothing_and_that_is_proven() -> None:
    plan = solve(a_free_and_a_dear_machine())
    assert figures(plan) == ("optimal", 0.0, 0.0, 0.0, 0.0, 0.0)
    assert plan.load_multiple == pytest.approx(2.0)
    assert [(a.without, a.value) for a in plan.alternatives] == [("a", 5.0)]
    assert plan.binding == ()


def test_without_any_budget_free_machines_serve_all_the_same() -> None:
    plan = solve(a_free_and_a_dear_machine("max_throughput", budget_usd_per_hour=0.0))
    assert figures(plan) == ("optimal", 2.0, 2.0, 0.0, 0.0, 0.0)
    assert [a.value for a in plan.alternatives] == [None]


def test_without_any_budget_what_costs_money_is_out_of_reach() -> None:
    problem = a_free_and_a_dear_machine("min_cost", budget_usd_per_hour=0.0)
    problem = replace(problem, objective=Objective("min_cost", headroom_fraction=2.0))
    plan = solve(problem)
    assert plan.status == "infeasible"
    assert [(c.constraint, c.needed, c.available) for c in plan.conflicts] == [("budget", 5.0, 0.0)]


def test_a_provider_limit_is_named_where_it_cuts_free_machines() -> None:
    problem = a_free_and_a_dear_machine("max_throughput", budget_usd_per_hour=0.0)
    problem = replace(
        problem,
        offers=(replace(problem.offers[0], available=9), problem.offers[1]),
        limits=replace(problem.limits, max_gpus_per_provider={"cloud": 3}),
    )
    plan = solve(problem)
    assert plan.value == pytest.approx(6.0)
    assert {b.constraint for b in plan.binding} == {"limit/max_gpus_per_provider/cloud"}


def test_storage_is_paid_for_on_machines_that_are_free() -> None:
    terms: dict[str, Any] = {"disk_gb": 800.0, "disk_usd_per_gb_month": 0.1}
    problem = a_problem(
        objective="min_cost",
        offers=[an_offer("l40s", 2, price=0.0, **terms)],
        gpus=[load_gpus()["l40s"]],
        models=[a_model(a_workload(), spec=load_models()["llama-3.1-8b"])],
        measured_only=False,
    )
    plan = solve(problem)
    assert plan.cost_usd_per_hour == sum(rental.storage_usd_per_hour * rental.count for rental in plan.rentals)
    assert plan.cost_usd_per_hour == pytest.approx(disk_needed_gb(problem)[0] * 0.1 / 720)
    assert solve(replace(problem, budget_usd_per_hour=0.0)).status == "infeasible"
