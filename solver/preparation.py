"""From a problem to the polytope that a method works on: supply, candidates, dominance, rows, scale."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from solver.allocation import Polytope, build_polytope
from solver.candidates import Candidates, enumerate_candidates, joined
from solver.dominance import prune_dominated, undominated
from solver.objectives import maximises_rate, total_demand
from solver.problem import Problem
from solver.relaxation import solve_relaxation
from solver.supply import Supply, build_supply


def prepare(problem: Problem, *, unlimited_networks: Collection[str] = ()) -> Polytope:
    """All rows over the candidates of which market and budget allow at least one replica; lam in requests/s."""
    supply = build_supply(problem)
    enumerated = enumerate_candidates(problem, supply, unlimited_networks=unlimited_networks)
    return of_possible(problem, supply, prune_dominated(enumerated))


def prepare_at_low(
    problem: Problem, supply: Supply, enumerated: Candidates, *, first: Candidates | None = None
) -> Polytope:
    """The same when every rate is at the low end of its band, where others of those enumerated are dominated.

    `first`: candidates, each possible, that come before these whether they are dominated or not.
    """
    kept = enumerated.take(undominated(replace(enumerated, rps=enumerated.low_rps)))
    candidates = kept if first is None else joined([first, kept], kept.rps.shape[1])
    return of_possible(problem, supply, candidates).at("low")


def of_possible(problem: Problem, supply: Supply, candidates: Candidates) -> Polytope:
    """All rows over those of the candidates of which market and budget allow at least one replica."""
    polytope = build_polytope(problem, supply, candidates)
    possible = polytope.use_upper >= 1
    if possible.all():
        return polytope
    return build_polytope(problem, supply, candidates.take(possible))


def scaled_to_one(polytope: Polytope) -> Polytope | None:
    """lam of order 1: the relaxation's optimum, or the offered demand for cost and power. None: nothing fits.

    HiGHS's tolerances are absolute.
    """
    if not len(polytope.candidates):
        return None
    if not maximises_rate(polytope.problem.objective):
        return polytope.scaled(total_demand(polytope.problem))
    relaxation = solve_relaxation(polytope, polytope.goal_throughput())
    if not np.isfinite(relaxation.objective) or relaxation.lam <= 0:
        return None
    return polytope.scaled(relaxation.lam)
