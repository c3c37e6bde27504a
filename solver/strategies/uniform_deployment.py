"""One tensor-parallel degree for all replicas of a model and no pipelines: the MILP paper without its choice of
deployment (arXiv 2502.00722, Figure 8 "uniform deployment configuration"). What is rented and routed
stays free.

The degrees are the best there are, one for each model: every combination is rated by its relaxation, and those are
solved that could still beat the best plan so far. With more than `_MOST_COMBINATIONS` of them each model gets the
degree whose relaxation is best when it has the market for itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from sutler.solver import planner
from sutler.solver.answer.describe import in_unit
from sutler.solver.answer.routing import without_idle
from sutler.solver.candidates.dominance import prune_dominated
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import of_possible, scaled_to_one
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.straight_line import refused, started

Degrees = tuple[int, ...]  # of each model

_MOST_COMBINATIONS = 64  # a relaxation each: three models with four degrees


@dataclass(frozen=True, slots=True)
class _Choice:
    """Degrees, their polytope, and the least that the primary objective can be with them, minimised (rates in
    requests/s)."""

    degrees: Degrees
    polytope: Polytope
    bound: float


def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The best plan with one degree for each model."""
    run = started(problem, seconds_left)
    best, value, bound = None, np.inf, np.inf
    for choice in _best_first(problem):
        if choice.bound >= value:
            break
        run.candidates = max(run.candidates, len(choice.polytope.candidates))
        found = planner.search(run, choice.polytope)
        if not isinstance(found, planner.FoundFleet):
            continue
        unit = _unit(found.polytope)
        bound = min(bound, found.first.bound * unit)
        if found.first.objective * unit < value:
            best, value = found, found.first.objective * unit
    if best is None:
        remedy = "it knows no pipelines, and one tensor-parallel degree for all replicas of a model: use sutler"
        return refused(run, problem, "uniform-deployment", remedy=remedy)
    used, routing = without_idle(best.polytope, best.allocation)
    proven = in_unit(best.polytope, bound / _unit(best.polytope))
    return StrategyPlan(planner.stated(run, best.polytope, used, routing, bound=proven), problem)


def _unit(polytope: Polytope) -> float:
    """What a minimised objective is to be multiplied with so that it does not depend on the scale."""
    return polytope.scale_rps if polytope.problem.objective.maximises_rate else 1.0


def _best_first(problem: Problem) -> list[_Choice]:
    supply = build_supply(problem)
    enumerated = enumerate_candidates(problem, supply)
    rated = (_rated(problem, supply, enumerated, degrees) for degrees in _combinations(problem, enumerated))
    return sorted((choice for choice in rated if choice is not None), key=lambda choice: choice.bound)


def _combinations(problem: Problem, enumerated: Candidates) -> Sequence[Degrees]:
    """Degrees worth rating."""
    own = _degrees(problem, enumerated)
    if len(own) == 1 or prod(len(degrees) for degrees in own.values()) <= _MOST_COMBINATIONS:
        return list(product(*own.values()))
    alone = [_best_first(replace(problem, models=(model,))) for model in problem.models]
    return [tuple(choices[0].degrees[0] for choices in alone)] if all(alone) else []


def _degrees(problem: Problem, enumerated: Candidates) -> Mapping[int, list[int]]:
    """Returns by model the degrees of its replicas without pipeline."""
    plain = enumerated.is_one_stage
    return {
        m: np.unique(enumerated.gpus[plain & (enumerated.model == m), 0]).tolist() for m in range(len(problem.models))
    }


def _rated(problem: Problem, supply: Supply, enumerated: Candidates, degrees: Degrees) -> _Choice | None:
    """Rates a combination by its relaxation; None: not even that serves everything."""
    kept = enumerated.is_one_stage & (enumerated.gpus[:, 0] == np.array(degrees)[enumerated.model])
    polytope = of_possible(problem, supply, prune_dominated(enumerated.take(kept)))
    scaled = scaled_to_one(polytope)
    if scaled is None:
        return None
    bound = solve_relaxation(scaled, first_goal(scaled)).bound
    return _Choice(degrees, polytope, bound * _unit(scaled)) if np.isfinite(bound) else None
