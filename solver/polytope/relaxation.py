"""The relaxation that bounds every plan: by column generation; where plans keep a reserve, by inequalities on fleets.

A replica that serves nothing as long as all goes well has no part in the LP of column_generation.py, where a relaxed
replica is the time spent on it. With reserve the relaxed fleet is the variable: its columns are priced by the
inequalities of fleet_bounds.py, and inequalities are added until it carries what it claims, before a loss and after
each. The loss of one machine takes away a whole replica of each candidate in use, which fractions of replicas know
nothing of: it is left to the searches.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array, hstack

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.polytope.column_generation import (
    FleetRow,
    Relaxation,
    bound_of_resources,
    infeasible,
    relaxed_without_reserve,
)
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.linear import LinearProgram, LpSolution, solve_lp
from sutler.solver.polytope.rows import Goal, Polytope

__all__ = ["Relaxation", "most_lam", "solve_relaxation"]

# Columns of each model and round, and rounds of inequalities, chosen: more columns make larger LPs, fewer more LPs.
_OF_EACH_AND_ROUND = 12
_MOST_ROUNDS = 400
_CLOSE = 1e-6  # of lam, well below any gap that is asked for
_PRICE_TOLERANCE = 1e-9  # relative to lam and scaled costs of order 1: what an LP's rounding makes of 0
_LEAST_SHORT = 1e-7  # of lam


def solve_relaxation(
    polytope: Polytope, goal: Goal, start: IntArray | None = None, columns: IntArray | None = None
) -> Relaxation:
    """The relaxation; to start from: candidates known to be useful, `columns` of another relaxation."""
    plain = relaxed_without_reserve(polytope, goal, start, columns)
    carries_nothing = goal.lam_weight < 0 and plain.lam <= 0
    if not polytope.problem.keeps_reserve or not np.isfinite(plain.objective) or carries_nothing:
        return plain
    useful = np.flatnonzero(plain.load > _PRICE_TOLERANCE)
    return _with_reserve(polytope, goal, plain, useful if start is None else np.union1d(useful, start))


def most_lam(goal: Goal, relaxation: Relaxation) -> float:
    """What no plan carries more of, or need not: where lam is worth nothing, its least is as good as any."""
    if goal.lam_weight >= 0:
        return goal.lam_lower
    if goal.use_cost.any() or goal.rent_cost.any():
        return np.inf
    return relaxation.bound / goal.lam_weight


def _with_reserve(polytope: Polytope, goal: Goal, plain: Relaxation, chosen: IntArray) -> Relaxation:
    bounds = FleetBounds(polytope, most_lam=most_lam(goal, plain))
    bounds.add_relaxed(plain)
    master = _Master(polytope, goal, bounds)
    for _ in range(_MOST_ROUNDS):
        chosen, solution = master.priced(chosen)
        if solution.x is None:
            return infeasible(polytope)
        lam, fleet = float(solution.x[0]), np.zeros(len(polytope.candidates))
        fleet[chosen] = np.maximum(solution.x[1 + len(goal.rent_cost) : 1 + len(goal.rent_cost) + len(chosen)], 0.0)
        used, known = np.flatnonzero(fleet), len(bounds.rows)
        carried = bounds.tighten(used, fleet[used], lam)
        if carried >= lam * (1 - _CLOSE) or len(bounds.rows) == known:
            break
    found = _finish(polytope, goal, plain, bounds.rows[:known], chosen, solution)
    return replace(found, cuts=tuple(bounds.rows))


class _Master:
    """The LP over chosen candidates with the inequalities so far; what falls with a machine is left out."""

    def __init__(self, polytope: Polytope, goal: Goal, bounds: FleetBounds) -> None:
        self._polytope, self._goal, self._bounds = polytope, goal, bounds

    def priced(self, chosen: IntArray) -> tuple[IntArray, LpSolution]:
        """Candidates with those that improve on them added until none does, and the optimum; `x` None: there is
        none, whichever are added."""
        solution = self._solved(chosen)
        while solution.x is None:
            short = self._solved(chosen, may_fall_short=True)
            assert short.x is not None  # nothing rented falls short of everything
            if short.objective <= _LEAST_SHORT:
                return chosen, short
            added = self._improving(chosen, short, at_all_costs=True)
            if len(added) == 0:
                return chosen, solution
            chosen = np.union1d(chosen, added)
            solution = self._solved(chosen)
        while len(added := self._improving(chosen, solution)):
            chosen = np.union1d(chosen, added)
            solution = self._solved(chosen)
        return chosen, solution

    def _solved(self, chosen: IntArray, *, may_fall_short: bool = False) -> LpSolution:
        """`may_fall_short`: by a column at the end, which is what is minimised then."""
        program = self._bounds.program(self._goal, chosen)
        program = replace(program, integer=np.zeros_like(program.integer))
        return solve_lp(
            _falling_short(program, len(self._bounds.rows), self._polytope) if may_fall_short else program
        )

    def _improving(self, chosen: IntArray, solution: LpSolution, *, at_all_costs: bool = False) -> IntArray:
        """The candidates with a negative reduced cost that are not in the LP yet, the best of each model."""
        cost = np.zeros_like(self._goal.use_cost) if at_all_costs else self._goal.use_cost
        reduced = _reduced_cost(self._polytope, cost, self._bounds.rows, solution.row_duals)
        reduced[chosen] = 0.0
        model = self._polytope.candidates.model
        best = [
            own[np.argsort(reduced[own], kind="stable")[:_OF_EACH_AND_ROUND]]
            for own in (np.flatnonzero((model == m) & (reduced < -_PRICE_TOLERANCE)) for m in np.unique(model))
        ]
        return np.concatenate(best)


def _falling_short(program: LinearProgram, inequalities: int, polytope: Polytope) -> LinearProgram:
    """The program whose inequalities on the fleet, and least numbers of replicas, may be fallen short of."""
    short = np.zeros(program.matrix.shape[0])
    short[:inequalities] = -1.0
    short[inequalities : inequalities + len(polytope.limit)][polytope.limit < 0] = -1.0
    return LinearProgram(
        cost=np.append(np.zeros_like(program.cost), 1.0),
        matrix=csr_array(hstack([program.matrix, csr_array(short.reshape(-1, 1))], format="csr")),
        row_lower=program.row_lower,
        row_upper=program.row_upper,
        lower=np.append(program.lower, 0.0),
        upper=np.append(program.upper, np.inf),
        integer=np.append(program.integer, False),
    )


def _reduced_cost(
    polytope: Polytope, use_cost: FloatArray, rows: Sequence[FleetRow], row_duals: FloatArray
) -> FloatArray:
    """[C] what a replica costs at the prices of resources, less what it earns in the inequalities."""
    of_rows = np.minimum(row_duals[: len(rows)], 0.0)
    of_resources = np.minimum(row_duals[len(rows) : len(rows) + len(polytope.limit)], 0.0)
    earned = np.zeros_like(use_cost)
    for row, dual in zip(rows, of_rows.tolist(), strict=True):
        if dual:
            earned += -dual * row.earned
    return np.asarray(use_cost - polytope.use.T @ of_resources - earned)


def _finish(
    polytope: Polytope,
    goal: Goal,
    plain: Relaxation,
    rows: Sequence[FleetRow],
    chosen: IntArray,
    solution: LpSolution,
) -> Relaxation:
    """The bound and the reduced costs at the final prices, as in column_generation.py."""
    assert solution.x is not None
    duals = np.minimum(solution.row_duals[: len(rows)], 0.0)
    resource_duals = np.minimum(solution.row_duals[len(rows) : len(rows) + len(polytope.limit)], 0.0)
    of_lam = np.array([row.lam for row in rows])
    if goal.lam_weight < 0 and duals @ of_lam < 0:
        duals = duals * (goal.lam_weight / float(duals @ of_lam))
    reduced_use = _reduced_cost(polytope, goal.use_cost, rows, np.concatenate([duals, resource_duals]))
    reduced_rent = goal.rent_cost - polytope.rent.T @ resource_duals
    bound = bound_of_resources(polytope, resource_duals, reduced_use, reduced_rent)
    bound -= float(duals @ np.array([row.fixed for row in rows]))
    of_lam_itself = goal.lam_weight - float(duals @ of_lam)
    bound += of_lam_itself * goal.lam_lower if of_lam_itself > -_PRICE_TOLERANCE else -np.inf
    num_rent = len(goal.rent_cost)
    load = np.zeros(len(polytope.candidates))
    load[chosen] = np.maximum(solution.x[1 + num_rent : 1 + num_rent + len(chosen)], 0.0)
    return replace(
        plain,
        objective=solution.objective,
        bound=min(bound, solution.objective),
        reduced_cost_use=reduced_use,
        reduced_cost_rent=reduced_rent,
        resource_duals=resource_duals,
        load=load,
        rented=solution.x[1 : 1 + num_rent],
        lam=float(solution.x[0]),
    )
