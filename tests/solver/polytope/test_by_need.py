"""Operating points by need: hopes are no worse than points, and nothing is lost or claimed that is not so."""

from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates import shapes
from sutler.solver.candidates.enumerate import Candidates, candidates_of_layouts, enumerate_candidates
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.plan import Plan
from sutler.solver.planner import SolveRun, solve
from sutler.solver.polytope import by_need, preparation
from sutler.solver.polytope.by_need import enumerated_by_need
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import Enumerated, scaled_to_one
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.problem import LatencyLimit, ObjectiveKind, Problem, SolveOptions
from sutler.solver.progress import SecondsLeft
from tests.builders import random_estimated_problem, random_estimated_roles_problem
from tests.looped import for_each

OBJECTIVES: Final[tuple[ObjectiveKind, ...]] = ("max_throughput", "min_cost", "min_power", "min_makespan")
# Each objective, with roles and without, and robust ones of both: those whose plans are quickly proven.
SEEDS: Final = (1, 20, 6, 21, 12, 19, 10, 15)


def limited(seed: int) -> Problem:
    """A random market with limits that some layouts miss, alone or for each workload."""
    draw = np.random.default_rng(seed)
    make = random_estimated_problem if seed % 3 else random_estimated_roles_problem
    problem = make(seed, OBJECTIVES[seed % 4])
    metrics = draw.choice(["ttft", "tpot", "e2e"], size=draw.integers(1, 3), replace=False)
    longest_s = {"ttft": 4.0, "tpot": 0.2, "e2e": 60.0}
    limits = tuple(
        LatencyLimit(metric, int(draw.choice([50, 90, 99])), float(longest_s[metric] * draw.uniform(0.2, 1.0)))
        for metric in metrics.tolist()
    )
    models = [replace(model, slo=limits) for model in problem.models]
    objective = replace(problem.objective, robust=seed % 5 == 0)
    return replace(
        problem,
        models=tuple(models),
        objective=objective,
        options=SolveOptions(alternatives=False, time_limit_s=600.0),
    )


def layouts(candidates: Candidates) -> list[bytes]:
    """What tells them apart."""
    owner = np.column_stack([candidates.model, candidates.precision, candidates.role, candidates.power_cap_fraction])
    shape = [candidates.one_piece[:, None], candidates.data_parallel[:, None], candidates.tensor_parallel]
    columns = np.hstack([owner, *shape, candidates.pool, candidates.piece_pool, candidates.piece_size])
    return [row.tobytes() for row in columns]


@for_each("seed", range(60), quick=4)
def test_no_point_is_better_than_hoped(seed: int) -> None:
    problem = limited(seed)
    supply = build_supply(problem)
    points, hopes = enumerate_candidates(problem, supply), enumerate_candidates(problem, supply, is_hoped=True)
    rps = dict(zip(layouts(hopes), hopes.rps, strict=True))
    assert len(rps) == len(hopes)  # each layout once
    for layout, counted in zip(layouts(points), points.rps, strict=True):
        assert (counted <= rps[layout] * (1 + 1e-9)).all()


def relaxed(problem: Problem, market: Enumerated) -> float:
    """What the relaxation says at best, in the objective's unit; inf where there is no plan."""
    polytope = market.polytope(problem)
    scaled = scaled_to_one(polytope) if polytope.servable().all() else None
    if scaled is None:
        return np.inf
    goal = first_goal(scaled)
    return solve_relaxation(scaled, goal).objective * (scaled.scale_rps if goal.lam_weight else 1.0)


def in_the_end(monkeypatch: pytest.MonkeyPatch) -> SecondsLeft:
    """Time that is over as soon as the relaxation uses nothing that is not rated, a few layouts at a time."""
    left, of_each = [1.0], by_need._best_of_each_model

    def settled(hopes: Candidates, least: FloatArray, used: IntArray) -> IntArray:
        wanted = of_each(hopes, least, used)
        left[0] = float(len(wanted) > 0)
        return wanted

    few_at_once(monkeypatch)
    monkeypatch.setattr(by_need, "_best_of_each_model", settled)
    return lambda: left[0]


def after_a_round(monkeypatch: pytest.MonkeyPatch) -> SecondsLeft:
    """Time that is over as soon as a few layouts are rated."""
    left, rated = [1.0], candidates_of_layouts

    def once(problem: Problem, supply: Supply, layouts: Candidates) -> Candidates:
        left[0] = 0.0
        return rated(problem, supply, layouts)

    few_at_once(monkeypatch)
    monkeypatch.setattr(by_need, "candidates_of_layouts", once)
    return lambda: left[0]


def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few layouts there are, they are rated by need."""
    monkeypatch.setattr(by_need, "_OF_EACH_AND_ROUND", 3)
    monkeypatch.setattr(by_need, "_LAYOUTS_PER_SECOND", 0)


@for_each("seed", SEEDS, quick=2)
def test_the_relaxation_is_that_over_all_points(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    problem = limited(seed)
    every = enumerated_by_need(problem, lambda: np.inf)
    with monkeypatch.context() as patched:
        some = enumerated_by_need(problem, in_the_end(patched))
    least = relaxed(problem, every)
    assert np.isinf(every.floor)
    assert len(some.candidates) <= len(every.candidates)
    assert relaxed(problem, some) == pytest.approx(least, rel=1e-6)
    assert np.isinf(some.floor) or some.floor >= least - 1e-6 * abs(least)


def planned(patched: pytest.MonkeyPatch, problem: Problem, seconds_left: SecondsLeft) -> Plan:
    few_at_once(patched)
    patched.setattr(SolveRun, "rating_seconds_left", lambda run: seconds_left())
    return solve(problem)


@for_each("seed", SEEDS, quick=2)
def test_bounds_hold_whatever_was_not_rated(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A few layouts of each model are, which is enough for most plans and for no proof."""
    problem = limited(seed)
    every = solve(problem)
    with monkeypatch.context() as patched:
        some = planned(patched, problem, after_a_round(patched))
    if every.value is None:
        assert some.value is None
        return
    assert some.status in ("optimal", "feasible", "unknown")
    if some.value is None or some.bound is None:
        return
    sign = 1.0 if problem.objective.kind == "max_throughput" else -1.0
    assert sign * some.bound >= sign * every.value - 1e-6 * abs(every.value)
    assert sign * some.value <= sign * every.value + 2e-3 * abs(every.value)


@for_each("seed", SEEDS, quick=1)
def test_plans_over_what_the_relaxation_uses_are_good(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    problem = limited(seed)
    every = solve(problem)
    with monkeypatch.context() as patched:
        some = planned(patched, problem, in_the_end(patched))
    assert (some.status == "infeasible") == (every.status == "infeasible")
    if every.value is not None and some.value is not None:
        assert some.value == pytest.approx(every.value, rel=0.1)


def test_plans_say_what_was_not_rated(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = limited(11)
    with monkeypatch.context() as patched:
        some = planned(patched, problem, after_a_round(patched))
    assert some.status == "feasible"
    assert any("were not rated" in warning for warning in some.warnings)
    assert not any("were not rated" in warning for warning in solve(problem).warnings)


def test_what_is_generated_counts_beside_what_is_not_rated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may combine both, and carry more than one without what is generated."""
    problem = limited(4)
    monkeypatch.setattr(shapes, "MOST_LISTED", 0)
    with monkeypatch.context() as patched:
        some = enumerated_by_need(problem, after_a_round(patched))
    with monkeypatch.context() as patched:
        patched.setattr(preparation, "deep_searches", lambda problem, supply: [])
        alone = enumerated_by_need(problem, after_a_round(patched))
    assert some.unlisted
    assert len(some.hopes) == len(alone.hopes) > 0
    assert some.floor < 1.01 * alone.floor < 0  # requests/s


def test_no_time_at_all_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = limited(1)
    assert solve(problem).value
    assert planned(monkeypatch, problem, lambda: 0.0).status == "unknown"
