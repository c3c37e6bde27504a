"""From a problem to the polytope that a method works on: supply, candidates, dominance, rows, scale.

Candidates are listed. Where pipelines are too many for that, the deep ones are generated: the relaxation over what is
known says what each stage is worth, and the cheapest pipelines at those prices (candidates/deep.py) join it until it
gains no more. What is found on the way is what the searches for whole fleets choose from, and what the proof is of.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.deep import DeepSearch, deep_searches
from sutler.solver.candidates.dominance import prune_dominated, undominated
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates, joined
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Polytope, build_polytope
from sutler.solver.problem import Problem

_MOST_ROUNDS: Final = 16  # of generation, a guard: the relaxation settles sooner
_GAIN: Final = 1e-4  # of the relaxation: rounds that gain less are the last; chosen: a tenth of the gap of plans
_LAST_ROUNDS: Final = 2  # in a row
_GOLDEN: Final = 0.6180339887  # of a step: the grids of several rounds lie as far apart as they can
_FREE: Final = 1e-6  # $/h of a GPU that costs nothing, so that of free ones fewer are better


@dataclass(frozen=True, slots=True)
class Enumerated:
    """All candidates of a market. `kept`: rows that no others replace at the rates themselves; `unlisted`: pipelines
    that were generated instead of listed; `hopes`: layouts that were listed, but not rated, each with what it carries
    at most; `floor`: the first objective, in its own unit, that every plan with one of those has at least (requests/s
    are negative)."""

    supply: Supply
    candidates: Candidates
    kept: IntArray
    hopes: Candidates
    unlisted: int = 0
    floor: float = np.inf

    def polytope(self, problem: Problem) -> Polytope:
        """Over those that are kept, as far as market and budget allow them."""
        return of_possible(problem, self.supply, self.candidates.take(self.kept))

    def only_kept_at_low(self) -> Candidates:
        """The candidates that others replace at the rates themselves, but not at the low end of the bands."""
        at_low = undominated(replace(self.candidates, rps=self.candidates.low_rps))
        return self.candidates.take(np.setdiff1d(at_low, self.kept))


def enumerated(problem: Problem, *, unlimited_networks: Collection[str] = ()) -> Enumerated:
    """Every candidate of the problem's market that is listed or generated."""
    supply = build_supply(problem)
    return with_generated(
        problem, supply, enumerate_candidates(problem, supply, unlimited_networks=unlimited_networks)
    )


def with_generated(problem: Problem, supply: Supply, listed: Candidates) -> Enumerated:
    """The listed candidates and those that are too many for that."""
    searches = deep_searches(problem, supply)
    candidates = _with_generated(problem, supply, listed, searches)
    unlisted = sum(search.pipelines.count for search in searches)
    return Enumerated(supply, candidates, undominated(candidates), joined([], problem), unlisted)


def undominated_candidates(problem: Problem, supply: Supply) -> Candidates:
    """Those that no others replace, of the market that `supply` is."""
    listed = enumerate_candidates(problem, supply)
    return prune_dominated(_with_generated(problem, supply, listed, deep_searches(problem, supply)))


def prepare(problem: Problem, *, unlimited_networks: Collection[str] = ()) -> Polytope:
    """All rows over the candidates of which market and budget allow at least one replica; lam in requests/s."""
    return enumerated(problem, unlimited_networks=unlimited_networks).polytope(problem)


def _with_generated(
    problem: Problem, supply: Supply, candidates: Candidates, searches: Sequence[DeepSearch]
) -> Candidates:
    """Adds deep pipelines: the first at what the market asks for their stages."""
    if not searches:
        return candidates
    stages = [search.stages() for search in searches]
    asked = [each.summed([price + _FREE for price in supply.least_usd_per_gpu_hour()]) for each in stages]
    known, kept, idle = _Known(asked, joined([], problem)), prune_dominated(candidates), 0
    for turn in range(_MOST_ROUNDS):
        shift, priced = turn * _GOLDEN % 1, zip(searches, known.prices, strict=True)
        parts = [search.better(price, known.used, shift=shift) for search, price in priced]
        candidates = joined([part for part in (candidates, *parts) if len(part)], problem)
        kept = prune_dominated(joined([part for part in (kept, *parts) if len(part)], problem))
        before, known = known, _known(problem, supply, kept, stages, asked)
        idle = 0 if known.gains_on(before) else idle + 1
        if idle == _LAST_ROUNDS:
            break
    return candidates


@dataclass(frozen=True, slots=True)
class _Known:
    """What candidates are worth: `least` the objective of the relaxation, inf where it does not carry what is asked,
    and then most the load that it carries; the price of each stage of each search; the candidates that it uses."""

    prices: list[FloatArray]
    used: Candidates
    least: float = np.inf
    most: float = 0.0

    def gains_on(self, before: "_Known") -> bool:
        if not np.isfinite(before.least):
            return np.isfinite(self.least) or self.most > before.most * (1 + _GAIN)
        return before.least - self.least > _GAIN * abs(before.least)


def _known(
    problem: Problem,
    supply: Supply,
    kept: Candidates,
    stages: Sequence[Candidates],
    asked: list[FloatArray],
) -> _Known:
    """The stages stand in the relaxation as candidates that serve nothing: rows know what they use. Where nothing
    carries anything, prices are those `asked`."""
    possible = of_possible(problem, supply, kept).candidates
    alone = [replace(each, rps=np.zeros_like(each.rps), low_rps=np.zeros_like(each.low_rps)) for each in stages]
    scaled = scaled_to_one(build_polytope(problem, supply, joined([*alone, possible], problem)))
    if scaled is None:
        return _Known(asked, joined([], problem))
    goal = first_goal(scaled)
    relaxation = solve_relaxation(scaled, goal)
    if not np.isfinite(relaxation.objective):
        goal = scaled.goal_throughput()
        relaxation = replace(solve_relaxation(scaled, goal), objective=np.inf)
    # Rows of least replicas count pipelines, not stages.
    counts = np.array([not name.startswith("limit/min_") for name in scaled.resources])
    price = goal.use_cost - scaled.use.T @ np.where(counts, np.minimum(relaxation.resource_duals, 0.0), 0.0)
    ends = np.cumsum([len(each) for each in stages])
    return _Known(
        prices=[np.maximum(one, 0.0) for one in np.split(price[: ends[-1]], ends[:-1])],
        used=scaled.candidates.take(np.flatnonzero(relaxation.load > 0)),
        least=relaxation.objective * (scaled.scale_rps if goal.lam_weight else 1.0),
        most=relaxation.lam * scaled.scale_rps,
    )


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
    wide = with_more(polytope, more)
    return wide, solve_relaxation(wide, first_goal(wide), columns=relaxation.columns)


def with_more(polytope: Polytope, more: Candidates) -> Polytope:
    """Adds candidates, of each of which market and budget allow at least one replica, at the end."""
    candidates = joined([polytope.candidates, more], polytope.problem)
    return build_polytope(polytope.problem, polytope.supply, candidates).scaled(polytope.scale_rps)


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
