"""Models that are searched apart: what is proven of them holds, their plans are plans, and both are found."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.answer.routing import route
from sutler.solver.arrays import IntArray
from sutler.solver.candidates.enumerate import Candidates, candidates_of_layouts, enumerate_candidates, joined
from sutler.solver.market.supply import build_supply
from sutler.solver.methods import exact, fleets_by_tree, models_apart
from sutler.solver.methods.search import Search, SearchOutcome
from sutler.solver.plan import Plan
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.one_model import of_one_model
from sutler.solver.polytope.preparation import prepare
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope, build_polytope
from sutler.solver.problem import LatencyLimit, Limits, Objective, ObjectiveKind, Problem, Resilience, SolveOptions
from sutler.solver.progress import SecondsLeft
from sutler.solver.verify import verify
from tests.builders import (
    a_model,
    a_problem,
    an_offer,
    measured,
    random_estimated_problem,
    random_problem,
    random_roles_problem,
)
from tests.looped import for_each

GAP: Final = 1e-6
OBJECTIVES: tuple[ObjectiveKind, ...] = ("max_throughput", "min_cost", "min_power")
FAMILIES: Final[dict[str, Callable[[int, ObjectiveKind], Problem]]] = {
    "measured": random_problem,
    "roles": random_roles_problem,
    "estimated": random_estimated_problem,
}


def of_family(family: str, seed: int) -> Problem:
    options = SolveOptions(relative_gap=GAP, tolerance_fraction=GAP, alternatives=False, time_limit_s=600.0)
    return replace(FAMILIES[family](seed, OBJECTIVES[seed % len(OBJECTIVES)]), options=options)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    """Models are searched apart however small the problem, and however little it brings; the searches as they were
    left."""
    left: list[Search] = []
    prove = models_apart.prove

    def noted(search: Search, solve_one: models_apart.SolveOne, seconds_left: SecondsLeft) -> None:
        prove(search, solve_one, seconds_left)
        left.append(replace(search))

    monkeypatch.setattr(exact, "_ONE_MILP", 0)
    monkeypatch.setattr(models_apart, "_WORTH", -np.inf)
    for module in (models_apart, exact, fleets_by_tree):
        monkeypatch.setattr(module, "LEAST_MODELS", 2)
    monkeypatch.setattr(models_apart, "prove", noted)
    return left


def in_one(problem: Problem) -> Plan:
    """By searches over all models together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_apart, "is_possible", lambda polytope: False)
        return solve(problem)


@pytest.mark.parametrize("family", FAMILIES)
@for_each("seed", range(1, 25), quick=2)
def test_values_are_those_of_a_search_over_all_models_and_bounds_hold(
    family: str, seed: int, always: list[Search]
) -> None:
    problem = of_family(family, seed)
    if len(problem.models) == 1:
        return
    ours, theirs = solve(problem), in_one(problem)
    assert (ours.value is None) == (theirs.value is None)
    if ours.value is None or theirs.value is None or ours.bound is None:
        return
    assert ours.value == pytest.approx(theirs.value, rel=3 * GAP)
    sign = 1 if problem.objective.maximises_rate else -1
    assert sign * (theirs.value - ours.bound) <= 3 * GAP * abs(theirs.value)
    assert not verify(problem, ours)


def with_hopes(seed: int, objective: ObjectiveKind) -> tuple[Polytope, Polytope, Candidates]:
    """The polytope of a random market with latency limits, that of half its layouts, and what the others carry at
    most."""
    limits = (LatencyLimit("ttft", 90, 2.0), LatencyLimit("tpot", 90, 0.1))
    problem = random_estimated_problem(seed, objective)
    problem = replace(problem, models=tuple(replace(model, slo=limits) for model in problem.models))
    supply = build_supply(problem)
    hopes = enumerate_candidates(problem, supply, is_hoped=True)
    hopes = hopes.take(np.flatnonzero(build_polytope(problem, supply, hopes).use_upper >= 1))
    rated = np.random.default_rng(seed).permutation(len(hopes)) % 2 == 0
    some, others = hopes.take(np.flatnonzero(rated)), hopes.take(np.flatnonzero(~rated))
    points, more = (candidates_of_layouts(problem, supply, layouts) for layouts in (some, others))
    scale = 1.0 if problem.objective.maximises_rate else problem.total_demand
    whole, half = (
        build_polytope(problem, supply, candidates).scaled(scale)
        for candidates in (joined([points, more], problem), points)
    )
    return whole, half, others


@for_each(
    "case",
    [
        ("max_throughput", 16),
        ("min_cost", 38),
        ("min_cost", 7),
        ("max_throughput", 11),
        ("min_cost", 16),
        ("max_throughput", 38),
        ("min_cost", 47),
    ],
    quick=2,
)
@pytest.mark.usefixtures("always")
def test_bounds_cover_layouts_that_were_not_rated_more_closely_than_the_relaxation(
    case: tuple[ObjectiveKind, int],
) -> None:
    objective, seed = case
    whole, half, hopes = with_hopes(seed, objective)
    limits: dict[str, Any] = {"relative_gap": GAP, "seconds_left": lambda: 600.0}
    covered = exact.minimise(half, first_goal(half), hopes=hopes, **limits).covered
    best = exact.minimise(whole, first_goal(whole), **limits)
    assert covered <= best.objective + GAP * abs(best.objective)
    assert covered > best.prices.bound + 1e-3 * abs(best.prices.bound)


@pytest.mark.slow
def test_whole_replicas_bound_more_than_the_relaxation_and_plans_are_found(always: list[Search]) -> None:
    for seed in range(1, 31):
        solve(of_family("measured", seed))
    assert len(always) > 5
    assert any(search.bound > search.relaxation.bound + 1e-3 * abs(search.relaxation.bound) for search in always)
    assert any(search.incumbent is not None for search in always)


@for_each("seed", range(1, 25), quick=4)
def test_what_a_model_is_known_to_cost_is_handed_on_for_the_same_load_alone(
    seed: int, always: list[Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its inequalities count on no more of a replica than that load asks of it."""
    loads: list[tuple[SearchOutcome, float]] = []
    one_of_several = exact._one_of_several

    def noted(gap: float, left: SecondsLeft, part: Polytope, goal: Goal, start: Any, before: Any) -> SearchOutcome:
        assert before is None or next(load for known, load in loads if known is before) == goal.lam_lower
        found = one_of_several(gap, left, part, goal, start, before)
        loads.append((found, goal.lam_lower))
        return found

    monkeypatch.setattr(exact, "_one_of_several", noted)
    solve(replace(of_family("measured", seed), objective=Objective("max_throughput")))


@pytest.mark.parametrize("seed", [7, 13])
def test_a_model_s_bound_holds_where_inequalities_choose_what_is_left_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a replica earns for less power or storage than another is not left out for it."""
    problem = random_estimated_problem(seed, "min_power")
    whole = prepare(replace(problem, search=replace(problem.search, power_caps_fraction=(0.5, 0.7))))
    part, rows = of_one_model(whole, 1)
    load = 0.3 * solve_relaxation(whole, whole.goal_throughput()).lam
    for price in (whole.watts_use[rows], whole.cost_use[rows]):
        goal = Goal(0.0, price + 1e-3, np.zeros(0), load)
        solve_one = partial(exact._one_of_several, GAP, lambda: 60.0, part, goal, None, None)
        value = solve_one().objective
        with monkeypatch.context() as patch:
            patch.setattr(fleets_by_tree, "is_possible", lambda polytope: False)
            patch.setattr(exact, "_routes_last", lambda polytope, goal: True)
            assert solve_one().bound <= value * (1 + GAP)


def of_two_models(**others: Any) -> Problem:
    given: dict[str, Any] = {"budget_usd_per_hour": 10.0, **others}
    return a_problem(
        models=[a_model(name="chat"), a_model(name="code")],
        rows=[measured("a", {"w1": 2.0}, "chat"), measured("b:2", {"w1": 3.0}, "code")],
        offers=[an_offer("a", 1, available=3, provider="one"), an_offer("b", 2, available=2)],
        **given,
    )


@for_each("seed", range(1, 31))
def test_a_fleet_carries_what_its_models_carry_apart(seed: int) -> None:
    polytope = prepare(random_problem(seed))
    draw = np.random.default_rng(seed)
    if not len(polytope.candidates):
        return
    chosen = np.sort(draw.choice(len(polytope.candidates), size=min(6, len(polytope.candidates)), replace=False))
    replicas = draw.integers(1, 4, size=len(chosen))

    def carried(part: Polytope, candidate: IntArray, many: IntArray) -> float:
        return route(part, Allocation(candidate, many, np.zeros(0, dtype=np.int64), 0.0)).lam

    apart = []
    for model in range(len(polytope.problem.models)):
        part, rows = of_one_model(polytope, model)
        own = np.isin(chosen, rows)
        apart.append(carried(part, np.searchsorted(rows, chosen[own]), replicas[own]))
    assert carried(polytope, chosen, replicas) == pytest.approx(min(apart))


@pytest.mark.parametrize(
    ("changes", "is_possible"),
    [
        ({}, True),
        ({"objective": "min_cost", "budget_usd_per_hour": None}, True),
        ({"budget_usd_per_hour": None}, False),
        ({"limits": Limits(max_share_per_provider_fraction=0.6)}, False),
        ({"resilience": Resilience(("provider",), 0.5)}, False),
    ],
)
@pytest.mark.usefixtures("always")
def test_models_are_apart_where_they_meet_in_resources_alone(changes: dict[str, Any], is_possible: bool) -> None:
    assert models_apart.is_possible(prepare(of_two_models(**changes))) == is_possible


def test_few_models_are_searched_together() -> None:
    assert not models_apart.is_possible(prepare(of_two_models()))
