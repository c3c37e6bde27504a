"""Laws that hold for every market: checked on random ones, with objectives compared through their proofs.

A plan's true optimum lies between its value and its bound. "A is no worse than B" is therefore refuted only where
the bound of A is worse than the value of B, whatever the gaps; the values themselves may cross within the gaps.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.problem import (
    Limits,
    Objective,
    ObjectiveKind,
    Offer,
    Problem,
    ServedModel,
    SolveOptions,
    Workload,
)
from sutler.solver.verify import verify
from tests.builders import (
    APPENDIX_C_MAKESPAN_S,
    OBJECTIVES,
    appendix_c,
    estimated_seeds,
    melange,
    random_estimated_problem,
    random_problem,
)

seeds = st.integers(min_value=0, max_value=100_000)
objectives = st.sampled_from(OBJECTIVES)
TOLERANCE = 1e-6

law = settings(derandomize=True, max_examples=8, database=None, suppress_health_check=[HealthCheck.too_slow])

short_law = settings(law, max_examples=6)
long_law = settings(law, max_examples=4)


def goodness(plan: Plan, figure: float | None) -> float:
    """Larger is better; an infeasible problem is worst."""
    if plan.status == "infeasible" or figure is None:
        return float("-inf")
    return figure if plan.objective == "max_throughput" else -figure


def is_no_worse(plan: Plan, other: Plan) -> bool:
    """The optimum behind `plan` can be as good as what `other` reaches."""
    reached = goodness(other, other.value)
    return goodness(plan, plan.bound) >= reached - TOLERANCE * abs(reached if reached > float("-inf") else 0.0)


def are_equal(plan: Plan, other: Plan) -> bool:
    return is_no_worse(plan, other) and is_no_worse(other, plan)


@given(seeds, objectives)
@law
def test_every_plan_verifies(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective, most_gpus=16)
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.status in ("optimal", "infeasible")


@pytest.mark.slow
@given(estimated_seeds, objectives)
@long_law
def test_every_plan_on_estimated_rates_verifies(seed: int, objective: ObjectiveKind) -> None:
    problem = random_estimated_problem(seed, objective)
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.status in ("optimal", "infeasible")


@pytest.mark.slow
@given(estimated_seeds, st.sampled_from(["max_throughput", "min_cost"]), st.floats(0.3, 0.9))
@long_law
def test_slower_links_and_smaller_disks_never_help(seed: int, objective: ObjectiveKind, factor: float) -> None:
    problem = random_estimated_problem(seed, objective)
    offers = [
        replace(
            offer,
            intra_machine_gb_per_s=offer.intra_machine_gb_per_s and offer.intra_machine_gb_per_s * factor,
            inter_machine_gb_per_s=offer.inter_machine_gb_per_s and offer.inter_machine_gb_per_s * factor,
            disk_gb=offer.disk_gb and offer.disk_gb * factor,
            disk_usd_per_gb_month=offer.disk_usd_per_gb_month / factor,
        )
        for offer in problem.offers
    ]
    assert is_no_worse(solve(problem), solve(replace(problem, offers=tuple(offers))))


@given(seeds, objectives, st.floats(1.05, 3.0))
@law
def test_more_budget_is_never_worse(seed: int, objective: ObjectiveKind, factor: float) -> None:
    problem = random_problem(seed, objective)
    assume(problem.budget_usd_per_hour is not None)
    richer = replace(problem, budget_usd_per_hour=(problem.budget_usd_per_hour or 0.0) * factor)
    assert is_no_worse(solve(richer), solve(problem))


@pytest.mark.slow
@given(seeds, objectives)
@law
def test_more_supply_is_never_worse(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    draw = Random(seed)
    more = [
        replace(o, available=o.available + (o.machine_id is None and draw.random() < 0.7)) for o in problem.offers
    ]
    extra = replace(draw.choice(problem.offers), offer_id="extra", machine_id=None, gpu_ids=None, available=1)
    assert is_no_worse(solve(replace(problem, offers=(*more, extra))), solve(problem))


@pytest.mark.slow
@given(seeds, objectives)
@short_law
def test_a_cap_never_helps(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_problem(seed, objective), limits=Limits())
    free = solve(problem)
    for cap in (
        Limits(max_gpus={"a": 2}),
        Limits(max_gpus_per_provider={"p": 2}),
        Limits(max_power_watts=1300.0),
        Limits(max_utilisation_fraction=0.8),
        Limits(max_share_per_provider_fraction=0.7),
    ):
        capped_problem = replace(problem, limits=cap)
        capped = solve(capped_problem)
        assert verify(capped_problem, capped) == ()
        assert is_no_worse(free, capped), cap


def _shuffled(problem: Problem, draw: Random) -> Problem:
    def shuffled(entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(draw.sample(entries, len(entries)))

    models = [replace(model, workloads=shuffled(model.workloads)) for model in shuffled(problem.models)]
    return replace(
        problem, models=tuple(models), offers=shuffled(problem.offers), measured=shuffled(problem.measured)
    )


def _renamed(problem: Problem) -> Problem:
    """Every name reversed and prefixed, which also turns alphabetical orders around."""

    def new(name: str) -> str:
        return {"a": "z", "b": "y", "p": "v", "q": "u"}.get(name, f"x{name[::-1]}")

    def offer(old: Offer) -> Offer:
        return replace(
            old,
            gpu=new(old.gpu),
            provider=new(old.provider),
            offer_id=new(old.offer_id),
            machine_id=old.machine_id and new(old.machine_id),
            site=old.site and new(old.site),
        )

    def workload(old: Workload) -> Workload:
        return replace(old, name=new(old.name))

    def model(old: ServedModel) -> ServedModel:
        return replace(old, name=new(old.name), workloads=tuple(map(workload, old.workloads)))

    rows = [
        replace(
            row,
            model=new(row.model),
            stages=tuple(replace(stage, gpu=new(stage.gpu)) for stage in row.stages),
            rps={new(name): rps for name, rps in row.rps.items()},
        )
        for row in problem.measured
    ]
    limits = problem.limits
    return replace(
        problem,
        models=tuple(map(model, problem.models)),
        offers=tuple(map(offer, problem.offers)),
        gpus={new(slug): replace(gpu, slug=new(slug)) for slug, gpu in problem.gpus.items()},
        measured=tuple(rows),
        limits=replace(
            limits,
            max_gpus={new(gpu): count for gpu, count in limits.max_gpus.items()},
            max_gpus_per_provider={new(name): count for name, count in limits.max_gpus_per_provider.items()},
        ),
    )


@given(seeds, objectives)
@law
def test_order_does_not_matter(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    assert are_equal(solve(_shuffled(problem, Random(seed))), solve(problem))


@given(seeds, objectives)
@law
def test_names_do_not_matter(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    renamed = _renamed(problem)
    plan = solve(renamed)
    assert verify(renamed, plan) == ()
    assert are_equal(plan, solve(problem))


def _with_demand_times(problem: Problem, factor: float) -> Problem:
    def model(old: ServedModel) -> ServedModel:
        return replace(old, workloads=tuple(replace(w, demand=w.demand * factor) for w in old.workloads))

    return replace(problem, models=tuple(map(model, problem.models)))


def _with_rates_times(problem: Problem, factor: float) -> Problem:
    rows = [replace(row, rps={name: rps * factor for name, rps in row.rps.items()}) for row in problem.measured]
    return replace(problem, measured=tuple(rows))


def _scaled(plan: Plan, factor: float) -> Plan:
    """The plan's claim in another unit."""
    if plan.value is None or plan.bound is None:
        return plan
    return replace(plan, value=plan.value * factor, bound=plan.bound * factor)


@pytest.mark.slow
@given(seeds, st.sampled_from([1e-3, 0.25, 7.0, 1e4]))
@law
def test_the_throughput_at_a_mix_does_not_depend_on_its_scale(seed: int, factor: float) -> None:
    problem = random_problem(seed, "max_throughput")
    assert are_equal(solve(_with_demand_times(problem, factor)), solve(problem))


@pytest.mark.slow
@given(seeds, st.sampled_from([1e-3, 0.25, 7.0, 1e4]))
@law
def test_the_makespan_is_proportional_to_the_requests(seed: int, factor: float) -> None:
    problem = random_problem(seed, "min_makespan")
    assert are_equal(solve(_with_demand_times(problem, factor)), _scaled(solve(problem), factor))


@pytest.mark.slow
@given(seeds, st.sampled_from([1e-3, 0.25, 7.0, 1e4]))
@law
def test_replicas_of_twice_the_speed_serve_twice_as_much(seed: int, factor: float) -> None:
    problem = random_problem(seed, "max_throughput")
    faster = _with_rates_times(problem, factor)
    plan = solve(faster)
    assert verify(faster, plan) == ()
    assert are_equal(plan, _scaled(solve(problem), factor))


@pytest.mark.slow
@given(seeds, st.sampled_from(["min_cost", "min_power"]), st.sampled_from([1e-2, 30.0]))
@law
def test_demand_and_speed_scaled_together_cost_the_same(seed: int, objective: ObjectiveKind, factor: float) -> None:
    problem = random_problem(seed, objective)
    assert are_equal(solve(_with_rates_times(_with_demand_times(problem, factor), factor)), solve(problem))


@pytest.mark.slow
@given(seeds, st.sampled_from(["min_cost", "min_power"]))
@law
def test_more_demand_is_never_cheaper(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    assert is_no_worse(solve(problem), solve(_with_demand_times(problem, 1.4)))


@pytest.mark.slow
@given(seeds, st.sampled_from(["max_throughput", "min_makespan"]))
@law
def test_exact_and_binary_search_agree(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective, most_gpus=16)
    searched_problem = replace(problem, options=SolveOptions(method="binary_search"))
    exact, searched = solve(problem), solve(searched_problem)
    assert verify(searched_problem, searched) == ()
    assert exact.status == searched.status
    if exact.value is not None and searched.value is not None:
        allowed = problem.options.relative_gap + problem.options.tolerance_fraction
        assert searched.value == pytest.approx(exact.value, rel=allowed)
    assert are_equal(exact, searched)


@pytest.mark.slow
@given(seeds)
@law
def test_the_least_cost_of_a_demand_buys_that_demand(seed: int) -> None:
    """Duality: with the least cost as budget, the throughput at the mix reaches the demand and its headroom."""
    problem = random_problem(seed, "min_cost")
    cheapest = solve(problem)
    assume(cheapest.status == "optimal")
    demand = sum(workload.demand for model in problem.models for workload in model.workloads)
    bought = solve(
        replace(problem, objective=Objective("max_throughput"), budget_usd_per_hour=cheapest.cost_usd_per_hour)
    )
    assert bought.bound is not None
    assert bought.bound >= demand * (1 + problem.objective.headroom_fraction) * (1 - TOLERANCE)


@pytest.mark.slow
@given(seeds)
@law
def test_no_cheaper_fleet_reaches_the_best_throughput(seed: int) -> None:
    """Duality the other way: the least cost of what was reached proves at most what was paid."""
    problem = random_problem(seed, "max_throughput")
    best = solve(problem)
    assume(best.value is not None)
    demand = sum(workload.demand for model in problem.models for workload in model.workloads)
    factor = (best.value or 0.0) * (1 - TOLERANCE) / demand
    cheapest = solve(replace(_with_demand_times(problem, factor), objective=Objective("min_cost")))
    assert cheapest.bound is not None
    assert cheapest.bound <= (best.cost_usd_per_hour or 0.0) * (1 + TOLERANCE)


def _without_times(plan: Plan) -> Plan:
    return replace(plan, solver=replace(plan.solver, seconds=0.0, phases=()))


@given(seeds, objectives)
@law
def test_the_same_problem_gives_the_same_plan(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective, most_gpus=16)
    assert repr(_without_times(solve(problem))) == repr(_without_times(solve(problem)))


@pytest.mark.parametrize("make", [appendix_c, lambda: appendix_c("binary_search")])
def test_appendix_c_takes_28_seconds_on_one_t1_and_a_pair_of_t2(make: Callable[[], Problem]) -> None:
    plan = solve(make())
    assert plan.makespan_s == pytest.approx(APPENDIX_C_MAKESPAN_S, rel=2e-3)
    assert round(plan.makespan_s or 0.0, 2) == 28.43
    assert sorted((rental.gpu, rental.gpus * rental.count) for rental in plan.rentals) == [("t1", 1), ("t2", 2)]
    layouts = [[(stage.gpu, stage.tensor_parallel) for stage in replica.stages] for replica in plan.replicas]
    assert sorted(layouts) == [[("t1", 1)], [("t2", 2)]]


def test_melange_costs_5_58_per_hour_on_five_4090_an_a100_and_an_h100() -> None:
    plan = solve(melange())
    assert plan.cost_usd_per_hour == pytest.approx(5.58, abs=1e-9)
    assert {rental.gpu: rental.gpus * rental.count for rental in plan.rentals} == {"rtx4090": 5, "a100": 1, "h100": 1}
