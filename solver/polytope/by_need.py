"""Operating points of the layouts that a good plan may have, where looking for those of all takes too long.

What a layout carries within its limits is known from its operating points, which take a millisecond; what it carries
at most takes a hundredth of that (throughput/hopes.py). So the relaxation starts from such hopes. Layouts that it
uses are rated, their points take the places of their hopes, and it is solved again, until it uses none that is not
rated: then it is the relaxation over the points of all layouts. The others are rated from the most to the least
promising, while there is time; the reduced cost of the next hope says what a plan with any that is left costs at
least. Of many models they are left: the search for the fleets of each bounds plans with hopes more closely
(methods/models_apart.py).

Flow: planner.py -> enumerated_by_need (here) -> preparation.Enumerated.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.dominance import prune_dominated
from sutler.solver.candidates.enumerate import Candidates, candidates_of_layouts, enumerate_candidates, joined, paired
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.one_model import LEAST_MODELS
from sutler.solver.polytope.preparation import Enumerated, scaled_to_one, with_generated
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import build_polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft

_LAYOUTS_PER_SECOND: Final = 1500  # whose points are found, of nine workloads on two cores of 2025
_OF_EACH_AND_ROUND: Final = 200  # of each model; chosen: fewer take as long, since short arrays do not pay
_SHARE_OF_ROUND: Final = 0.01  # of a model's layouts; chosen: of many the relaxation takes longer than rating so many
_AT_ONCE: Final = 6000  # of those that the relaxation does not use; chosen: some seconds
_TIME_SHARE_OF_OTHERS: Final = 0.6  # of all: the search for a plan has more use of the rest than its bound has
_USED: Final = 1e-9  # of the objective: reduced costs below are of what the relaxation uses


def enumerated_by_need(problem: Problem, seconds_left: SecondsLeft) -> Enumerated:
    """The candidates of the problem's market; where operating points take longer than there is time those of the
    layouts that its relaxation uses, as far as time allows, and of others that are nearly as good.

    Where plans keep a reserve, all of them: reduced costs are of a relaxation without.
    """
    supply = build_supply(problem)
    if any(model.is_limited for model in problem.models) and not problem.keeps_reserve:
        hopes = enumerate_candidates(problem, supply, is_hoped=True)
        if len(hopes) > _LAYOUTS_PER_SECOND * seconds_left():
            known, hopes, least = _rated(problem, supply, hopes, seconds_left)
            every = with_generated(problem, supply, known)
            if every.unlisted:  # plans may combine what is not rated with what was generated since
                least, _ = _least_objectives(problem, supply, every.candidates.take(every.kept), hopes)
            possible = hopes.take(np.flatnonzero(np.isfinite(least)))
            return replace(every, hopes=possible, floor=float(least.min(initial=np.inf)))
    return with_generated(problem, supply, enumerate_candidates(problem, supply))


def _rated(
    problem: Problem, supply: Supply, hopes: Candidates, seconds_left: SecondsLeft
) -> tuple[Candidates, Candidates, FloatArray]:
    """Operating points, the hopes of layouts that have none among them, and the least objectives of plans with each
    of those."""
    share = _TIME_SHARE_OF_OTHERS if len(problem.models) < LEAST_MODELS else 0.0
    kept_s = (1 - share) * seconds_left()
    hopes = hopes.take(build_polytope(problem, supply, hopes).use_upper >= 1)
    known = kept = joined([], problem)
    while True:
        least, used = _least_objectives(problem, supply, kept, hopes)
        wanted = _best_of_each_model(hopes, least, used)
        if not len(wanted) or seconds_left() <= 0:
            break
        more = candidates_of_layouts(problem, supply, hopes.take(wanted))
        known, kept = (joined([part for part in (some, more) if len(part)], problem) for some in (known, kept))
        kept, hopes = prune_dominated(kept), hopes.take(np.setdiff1d(np.arange(len(hopes)), wanted))
    parts, order = [known], np.argsort(least, kind="stable")
    while len(order) and np.isfinite(least[order[0]]) and seconds_left() > kept_s:
        parts.append(candidates_of_layouts(problem, supply, hopes.take(order[:_AT_ONCE])))
        order = order[_AT_ONCE:]
    known = joined([part for part in parts if len(part)], problem)
    return paired(known, supply), hopes.take(order), least[order]


def _least_objectives(
    problem: Problem, supply: Supply, kept: Candidates, hopes: Candidates
) -> tuple[FloatArray, IntArray]:
    """The objective, in its own unit, that plans with each of the hopes have at least, inf where there are none; and
    which of the hopes the relaxation uses."""
    possible = joined([part for part in (kept, hopes) if len(part)], problem)
    polytope = scaled_to_one(build_polytope(problem, supply, possible))
    if polytope is None:
        return np.full(len(hopes), np.inf), np.zeros(0, dtype=np.int64)
    goal = first_goal(polytope)
    relaxation = solve_relaxation(polytope, goal)
    more = relaxation.reduced_cost_use[len(kept) :]
    least = (relaxation.bound + more) * (polytope.scale_rps if goal.lam_weight else 1.0)
    return least, np.flatnonzero((more <= _USED) & np.isfinite(least))


def _best_of_each_model(hopes: Candidates, least: FloatArray, used: IntArray) -> IntArray:
    """Those that are used, and others of their models."""
    order, best = np.argsort(least, kind="stable"), [np.zeros(0, dtype=np.int64)]
    for model in np.unique(hopes.model[used]):
        own = order[hopes.model[order] == model]
        best.append(own[: max(_OF_EACH_AND_ROUND, int(_SHARE_OF_ROUND * len(own)))])
    return np.concatenate(best)
