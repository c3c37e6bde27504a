"""From a problem to the polytope that a method works on: supply, candidates, dominance, rows, scale."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from sutler.solver.arrays import IntArray
from sutler.solver.candidates.dominance import prune_dominated, undominated
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates, joined
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Polytope, build_polytope
from sutler.solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Enumerated:
    """All candidates of a market. `kept`: rows that no others replace at the rates themselves."""

    supply: Supply
    candidates: Candidates
    kept: IntArray

    def polytope(self, problem: Problem) -> Polytope:
        """Over those that are kept, as far as market and budget allow them."""
        return of_possible(problem, self.supply, self.candidates.take(self.kept))

    def only_kept_at_low(self) -> Candidates:
        """The candidates that others replace at the rates themselves, but not at the low end of the bands."""
        at_low = undominated(replace(self.candidates, rps=self.candidates.low_rps))
        return self.candidates.take(np.setdiff1d(at_low, self.kept))


def enumerated(problem: Problem) -> Enumerated:
    """Every candidate of the problem's market."""
    supply = build_supply(problem)
    candidates = enumerate_candidates(problem, supply)
    return Enumerated(supply, candidates, undominated(candidates))


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
    candidates = kept if first is None else joined([first, kept], problem)
    return of_possible(problem, supply, candidates).at("low")


def widened(polytope: Polytope, relaxation: Relaxation, more: Candidates) -> tuple[Polytope, Relaxation]:
    """Adds those of `more` that market and budget allow at the end, and solves the relaxation of the first goal over
    all."""
    more = more.take(build_polytope(polytope.problem, polytope.supply, more).use_upper >= 1) if len(more) else more
    if not len(more):
        return polytope, relaxation
    candidates = joined([polytope.candidates, more], polytope.problem)
    wide = build_polytope(polytope.problem, polytope.supply, candidates).scaled(polytope.scale_rps)
    return wide, solve_relaxation(wide, first_goal(wide), columns=relaxation.columns)


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
    if not polytope.problem.objective.maximises_rate:
        return polytope.scaled(polytope.problem.total_demand)
    relaxation = solve_relaxation(polytope, polytope.goal_throughput())
    if not np.isfinite(relaxation.objective) or relaxation.lam <= 0:
        return None
    return polytope.scaled(relaxation.lam)
