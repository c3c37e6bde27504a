"""Laws of markets on which prefill and decode may run apart, objectives compared as in test_laws.py."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.problem import Disaggregation, Objective, ObjectiveKind, Problem, SolveOptions
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, random_estimated_roles_problem, random_roles_problem
from tests.looped import for_each
from tests.solver.replanning.builders import considered, with_demand, without
from tests.solver.role_builders import with_mode
from tests.solver.test_laws import are_equal, is_no_worse

PLAIN = SolveOptions(alternatives=False)
MODES: tuple[Disaggregation, ...] = ("auto", "off", "only")


def drawn(seed: int, *, is_estimated: bool = False, **options: Any) -> Problem:
    """A random market with roles; seeds take the objectives in turn."""
    objective: ObjectiveKind = OBJECTIVES[seed % len(OBJECTIVES)]
    make = random_estimated_roles_problem if is_estimated else random_roles_problem
    return replace(make(seed, objective), options=replace(PLAIN, **options))


def plans_by_mode(problem: Problem) -> dict[str, Plan]:
    return {mode: solve(with_mode(problem, mode)) for mode in MODES}


@for_each("first", range(2000, 2040, 10), quick=1)
def test_auto_is_never_worse_than_off_or_only(first: int) -> None:
    """Every one of the plans verifies, else solve raises."""
    for seed in range(first, first + 10):
        plans = plans_by_mode(drawn(seed))
        assert is_no_worse(plans["auto"], plans["off"]), seed
        assert is_no_worse(plans["auto"], plans["only"]), seed


@pytest.mark.slow
@for_each("seed", range(1, 5))
def test_auto_is_never_worse_on_estimated_rates(seed: int) -> None:
    plans = plans_by_mode(drawn(seed, is_estimated=True))
    assert is_no_worse(plans["auto"], plans["off"])
    assert is_no_worse(plans["auto"], plans["only"])


@for_each("seed", [*range(1, 6), 7, 10, 12], quick=3)
def test_plans_with_alternatives_and_robustness_verify_too(seed: int) -> None:
    problem = drawn(seed, is_estimated=seed % 2 == 0, alternatives=True)
    assert verify(problem, solve(problem)) == ()


@for_each("seed", range(16), quick=5)
def test_more_budget_is_never_worse(seed: int) -> None:
    problem = drawn(seed)
    richer = replace(problem, budget_usd_per_hour=(problem.budget_usd_per_hour or 1e6) * Random(seed).uniform(1.1, 2))
    assert is_no_worse(solve(richer), solve(problem))


@for_each("seed", range(1, 6), quick=1)
def test_more_bandwidth_between_machines_is_never_worse(seed: int) -> None:
    problem = drawn(seed, is_estimated=True)
    wider = [
        replace(offer, inter_machine_gb_per_s=offer.inter_machine_gb_per_s and offer.inter_machine_gb_per_s * 4)
        for offer in problem.offers
    ]
    assert is_no_worse(solve(replace(problem, offers=tuple(wider))), solve(problem))


@for_each("seed", range(16), quick=5)
def test_a_further_row_is_never_worse(seed: int) -> None:
    problem = drawn(seed)
    assert is_no_worse(solve(problem), solve(replace(problem, measured=problem.measured[:-1])))


@for_each("seed", range(16), quick=5)
def test_order_does_not_matter(seed: int) -> None:
    problem, draw = drawn(seed), Random(seed)

    def shuffled(entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(draw.sample(entries, len(entries)))

    models = [replace(model, workloads=shuffled(model.workloads)) for model in shuffled(problem.models)]
    other = replace(
        problem, models=tuple(models), offers=shuffled(problem.offers), measured=shuffled(problem.measured)
    )
    assert are_equal(solve(other), solve(problem))


@for_each("seed", range(16), quick=5)
def test_names_do_not_matter(seed: int) -> None:
    """GPUs, providers and sites sort the other way round."""
    problem = drawn(seed)
    gpus, providers = {"a": "z", "b": "y"}, {"p": "v", "q": "u"}
    sites = {site: f"{9 - number}" for number, site in enumerate(sorted({o.site or "" for o in problem.offers}))}
    offers = [
        replace(o, gpu=gpus[o.gpu], provider=providers[o.provider], site=o.site and sites[o.site])
        for o in problem.offers
    ]
    rows = [
        replace(row, stages=tuple(replace(stage, gpu=gpus[stage.gpu]) for stage in row.stages))
        for row in problem.measured
    ]
    limits = replace(
        problem.limits,
        max_gpus={gpus[gpu]: count for gpu, count in problem.limits.max_gpus.items()},
        max_gpus_per_provider={providers[p]: count for p, count in problem.limits.max_gpus_per_provider.items()},
    )
    cards = {gpus[slug]: replace(gpu, slug=gpus[slug]) for slug, gpu in problem.gpus.items()}
    other = replace(problem, offers=tuple(offers), measured=tuple(rows), limits=limits, gpus=cards)
    assert are_equal(solve(other), solve(problem))


@pytest.mark.slow
@for_each("seed", range(1, 7))
def test_the_same_problem_gives_the_same_plan(seed: int) -> None:
    problem = drawn(seed, is_estimated=seed % 4 == 0)

    def without_times(plan: Plan) -> Plan:
        return replace(plan, solver=replace(plan.solver, seconds=0.0, phases=()))

    assert repr(without_times(solve(problem))) == repr(without_times(solve(problem)))


@for_each("seed", range(100, 116), quick=5)
def test_exact_and_binary_search_agree(seed: int) -> None:
    problem = replace(random_roles_problem(seed, OBJECTIVES[seed % 2]), options=PLAIN)
    searched = solve(replace(problem, options=replace(PLAIN, method="binary_search")))
    exact = solve(problem)
    assert exact.status == searched.status
    assert are_equal(exact, searched)


@for_each("seed", range(2, 66, 4), quick=5)
def test_the_least_cost_of_a_demand_buys_that_demand(seed: int) -> None:
    problem = drawn(seed)
    assert problem.objective.kind == "min_cost"
    cheapest = solve(problem)
    if cheapest.status != "optimal":
        return
    demand = sum(workload.demand for model in problem.models for workload in model.workloads)
    spent = cheapest.cost_usd_per_hour
    bought = solve(replace(problem, objective=Objective("max_throughput"), budget_usd_per_hour=spent))
    assert bought.bound is not None
    assert bought.bound >= demand * (1 + problem.objective.headroom_fraction) * (1 - 1e-6)


@for_each("seed", range(16), quick=2)
def test_a_fleet_with_roles_is_considered_anew_after_a_machine_is_lost(seed: int) -> None:
    """Every option is verified, else considering raises; what is left of a pair may be idle."""
    problem = replace(random_roles_problem(seed), options=PLAIN)
    plan = solve(problem)
    if not plan.rentals:
        return
    lost = Random(seed).choice(plan.rentals).offer_id
    for factor in (0.5, 1.0):
        changed = replace(with_demand(problem, factor), budget_usd_per_hour=None)
        found = considered(changed, plan, holdings=without(plan, {lost: 1}))
        assert "keep" in {option.kind for option in found.options}
