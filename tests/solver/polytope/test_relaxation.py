"""Column generation against the whole LP, and what its duals promise against LPs that put it to the test."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.polytope.linear import solve_milp
from sutler.solver.polytope.milp import build_milp
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.problem import ObjectiveKind, Search
from tests.builders import (
    APPENDIX_C_MAKESPAN_S,
    OBJECTIVES,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    measured,
    melange,
    random_estimated_problem,
    random_estimated_roles_problem,
    random_problem,
    random_roles_problem,
)
from tests.looped import for_each
from tests.solver.planning_builders import WholeProgram, integer_optimum, polytope_of

TOLERANCE = 1e-6


def close(value: float) -> object:
    return pytest.approx(value, rel=TOLERANCE, abs=1e-7)


def relaxed(seed: int, objective: ObjectiveKind) -> tuple[Polytope, Goal, Relaxation]:
    polytope = polytope_of(random_problem(seed, objective, most_gpus=14))
    goal = first_goal(polytope)
    return polytope, goal, solve_relaxation(polytope, goal)


def test_appendix_c_is_not_better_with_fractions_of_replicas() -> None:
    """On 4 $/h of t2 and 4 $/h of t1 a pair of t2 earns most on w1 and t1 on w2: 3.4 / (0.8 + 0.2/1.2) req/s."""
    polytope = polytope_of(appendix_c())
    relaxation = solve_relaxation(polytope, polytope.goal_throughput())
    assert relaxation.lam == close(100 / APPENDIX_C_MAKESPAN_S)


def test_with_nothing_to_run_nothing_is_carried() -> None:
    problem = a_problem(offers=[an_offer("a")])
    polytope = polytope_of(problem)
    assert solve_relaxation(polytope, polytope.goal_throughput()).lam == 0.0
    needy = polytope_of(replace(problem, objective=replace(problem.objective, kind="min_cost")))
    assert solve_relaxation(needy, first_goal(needy)).objective == np.inf


def test_half_a_replica_is_allowed() -> None:
    """Two types at 2 $/h and 1 req/s each: on 5 $/h two and a half GPUs, 0.5 req/s for each further $/h."""
    problem = a_problem(
        offers=[an_offer(gpu, price=2.0, available=9) for gpu in "ab"],
        rows=[measured(gpu, {"w1": 1.0}) for gpu in "ab"],
        budget_usd_per_hour=5.0,
    )
    polytope = polytope_of(problem)
    relaxation = solve_relaxation(polytope, polytope.goal_throughput())
    assert relaxation.lam == close(2.5)
    assert relaxation.load.sum() == close(2.5)
    duals = dict(zip(polytope.resources, relaxation.resource_duals.tolist(), strict=True))
    assert duals["budget"] == close(-0.5)


def test_melange_with_fractions_of_gpus_is_cheaper_than_with_whole_ones() -> None:
    """4090s alone would cost (14/6 + 10/2 + 10/2 + 6/0.8) x 0.34 = 6.74 $/h, the best whole GPUs cost 5.58."""
    polytope = polytope_of(melange())
    goal = first_goal(polytope)
    relaxation = solve_relaxation(polytope, goal)
    assert relaxation.objective == close(WholeProgram(polytope, goal).optimum())
    assert 5.0 < relaxation.objective < 5.58


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(2, 92, 5))
def test_column_generation_finds_the_optimum_of_the_whole_program(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed(seed, objective)
    if len(polytope.candidates):
        assert relaxation.objective == close(WholeProgram(polytope, goal).optimum())


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(8), quick=2)
def test_column_generation_finds_the_optimum_on_estimated_rates(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_estimated_problem(seed, objective), search=Search(max_pipeline_stages=2))
    polytope = polytope_of(problem)
    goal = first_goal(polytope)
    assert solve_relaxation(polytope, goal).objective == close(WholeProgram(polytope, goal).optimum())


def relaxed_with_roles(seed: int, objective: ObjectiveKind) -> tuple[Polytope, Goal, Relaxation]:
    polytope = polytope_of(random_roles_problem(seed, objective, most_gpus=12))
    goal = first_goal(polytope)
    return polytope, goal, solve_relaxation(polytope, goal)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(16), quick=6)
def test_column_generation_finds_the_optimum_of_roles(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed_with_roles(seed, objective)
    assert relaxation.objective == close(WholeProgram(polytope, goal).optimum())
    if np.isfinite(relaxation.objective):
        assert relaxation.bound == close(relaxation.objective)
    assert relaxation.bound <= integer_optimum(polytope, goal) + TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 24, 4))
def test_forcing_a_replica_with_a_role_costs_at_least_its_reduced_cost(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed_with_roles(seed, objective)
    if not np.isfinite(relaxation.objective):
        return
    for c in range(0, len(polytope.candidates), 2):
        forced = WholeProgram(polytope, goal)
        forced.use_lower[c] = 1.0
        assert forced.optimum() >= relaxation.bound + relaxation.reduced_cost_use[c] - TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(6), quick=1)
def test_column_generation_finds_the_optimum_of_estimated_roles(seed: int, objective: ObjectiveKind) -> None:
    problem = random_estimated_roles_problem(seed, objective)
    polytope = polytope_of(replace(problem, offers=problem.offers[:4], models=problem.models[:1]))
    goal = first_goal(polytope)
    assert solve_relaxation(polytope, goal).objective == close(WholeProgram(polytope, goal).optimum())


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 60, 4))
def test_the_bound_is_below_every_plan_and_close_to_the_relaxation(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed(seed, objective)
    assert relaxation.bound <= relaxation.objective
    if np.isfinite(relaxation.objective):
        assert relaxation.bound == close(relaxation.objective)
    assert relaxation.bound <= integer_optimum(polytope, goal) + TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 45, 4))
def test_forcing_a_replica_costs_at_least_its_reduced_cost(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed(seed, objective)
    if not np.isfinite(relaxation.objective):
        return
    for c in range(len(polytope.candidates)):
        forced = WholeProgram(polytope, goal)
        forced.use_lower[c] = 1.0
        assert forced.optimum() >= relaxation.bound + relaxation.reduced_cost_use[c] - TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 45, 4))
def test_renting_a_machine_more_or_less_costs_at_least_its_reduced_cost(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed(seed, objective)
    if not np.isfinite(relaxation.objective):
        return
    for k, reduced in enumerate(relaxation.reduced_cost_rent.tolist()):
        forced = WholeProgram(polytope, goal)
        if reduced >= 0:
            forced.rent_lower[k] = 1.0
        else:
            forced.rent_upper[k] -= 1.0
        assert forced.optimum() >= relaxation.bound + abs(reduced) - TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 60, 4))
def test_the_columns_to_start_from_do_not_matter(seed: int, objective: ObjectiveKind) -> None:
    polytope, goal, relaxation = relaxed(seed, objective)
    start = np.arange(len(polytope.candidates))[::2]
    assert solve_relaxation(polytope, goal, start).objective == close(relaxation.objective)


def test_a_demand_beyond_the_market_makes_the_relaxation_infeasible() -> None:
    """2 GPUs of 1 req/s cannot carry 3 req/s at any price."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=3.0))],
        offers=[an_offer("a", available=2)],
        rows=[measured("a", {"w1": 1.0})],
    )
    polytope = polytope_of(problem)
    relaxation = solve_relaxation(polytope, first_goal(polytope))
    assert relaxation.objective == np.inf
    assert relaxation.bound == np.inf


@for_each("seed", range(0, 60, 3))
def test_loads_and_rentals_of_the_relaxation_keep_every_limit(seed: int) -> None:
    polytope, _, relaxation = relaxed(seed, "max_throughput")
    used = polytope.use @ relaxation.load + polytope.rent @ relaxation.rented
    assert (used <= polytope.limit + 1e-7 * np.maximum(1.0, np.abs(polytope.limit))).all()
    assert (relaxation.rented <= polytope.rent_upper + 1e-9).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_rarely_asked_takes_whole_replicas_in_the_relaxed_program_too(objective: ObjectiveKind) -> None:
    """No integer plan is lost by the bound on lam, and the relaxed program comes closer to them."""
    tighter = 0
    for seed in range(20):
        polytope, goal, relaxation = relaxed(seed, objective)
        if not np.isfinite(relaxation.objective) or len(polytope.candidates) == 0:
            continue
        most = goal.lam_lower if goal.lam_weight >= 0 else relaxation.bound / goal.lam_weight
        everything = np.arange(len(polytope.candidates))
        plain = build_milp(polytope, goal, everything).program
        bounded = build_milp(polytope, goal, everything, most_lam=most).program
        best = [solve_milp(one, relative_gap=1e-9, time_limit_s=60.0).objective for one in (plain, bounded)]
        assert best[1] == close(best[0]) or np.isinf(best).all(), seed
        free = [replace(one, integer=np.zeros_like(one.integer)) for one in (plain, bounded)]
        loose, tight = (solve_milp(one, relative_gap=1e-9, time_limit_s=60.0).objective for one in free)
        assert loose <= tight + TOLERANCE * abs(tight) + 1e-9, seed
        tighter += tight > loose + 1e-4 * abs(loose)
    assert tighter > 3
