"""What an autoscaler does: again and again the replica that is cheapest for its rate, until the load is carried.

A replica is rated on the mix of its model, all of which it has to serve, and priced by the cheapest GPUs that it can
run on: in $/h, or in watts where the objective is power. The next replica is of the model that lags behind the most;
the best value that still fits budget, limits and market is taken and never given back. Where there is a budget to
spend instead of a load to carry, it ends when nothing more fits for that model. Routing is in proportion to capacity.
"""

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import straight_line
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.rules import by_weight, least_expense, mixed_rates
from sutler.solver.strategies.straight_line import CARRIES, Ruled

_NAME = "greedy-cheapest"
_REMEDY = "it buys the best value first and gives nothing back: add offers or raise the budget"
_TOLERANCE = 1e-9  # relative: what sums of floats may be off by


def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    """The fleet that grows by the best value. Raises NotApplicableError."""
    straight_line.refuse_conditions(problem)
    run = straight_line.started(problem, seconds_left)
    scaled = scaled_to_one(prepare(straight_line.aggregated(problem)))
    if scaled is None:
        return straight_line.answered(run, problem, _NAME, None, remedy=_REMEDY)
    run.candidates = len(scaled.candidates)
    wanted = np.inf if problem.objective.maximises_rate else problem.objective.carried_load
    rates = mixed_rates(scaled)
    growing = _Fleet(scaled, run.seconds_left)
    carried = _grow(growing, rates, least_expense(scaled), wanted, run.seconds_left)
    candidate = np.flatnonzero(growing.replicas)
    short = carried < CARRIES * wanted if np.isfinite(wanted) else carried == 0
    if short:
        return straight_line.answered(run, problem, _NAME, None, remedy=_REMEDY, carried=carried)
    fleet = Allocation(candidate, growing.replicas[candidate], growing.machines, carried)
    routing = by_weight(scaled, fleet, rates[candidate])
    return straight_line.answered(run, problem, _NAME, Ruled(scaled, fleet, routing), remedy=_REMEDY)


def _grow(fleet: "_Fleet", rates: FloatArray, price: FloatArray, wanted: float, seconds_left: SecondsLeft) -> float:
    """Add replicas; the multiple of the load that the model which lags behind carries in the end."""
    models = fleet.polytope.candidates.model
    carried = np.zeros(len(fleet.polytope.problem.models))
    order = np.argsort(price / np.where(rates > 0, rates, np.nan), kind="stable")
    waiting = [[int(c) for c in order if models[c] == m and rates[c] > 0] for m in range(len(carried))]
    while carried.min() < CARRIES * wanted and seconds_left() > 0:
        model = int(carried.argmin())
        while waiting[model] and not fleet.takes(waiting[model][0]):
            waiting[model].pop(0)  # what does not fit will not fit beside more
        if not waiting[model]:
            break
        carried[model] += rates[waiting[model][0]]
    return float(carried.min())


class _Fleet:
    """Replicas [C] and the machines [K] that hold them; machines are chosen anew only where there is no room left."""

    def __init__(self, polytope: Polytope, seconds_left: SecondsLeft) -> None:
        self.polytope = polytope
        self.replicas: IntArray = np.zeros(len(polytope.candidates), dtype=np.int64)
        self.machines: IntArray = np.zeros(len(polytope.cost_rent), dtype=np.int64)
        self._seconds_left = seconds_left
        self._use = polytope.use.tocsc()
        self._used = np.zeros(len(polytope.limit))
        self._rented = np.zeros(len(polytope.limit))
        self._most_room = np.maximum(-polytope.rent.toarray(), 0.0) @ polytope.rent_upper
        self._limit = polytope.limit + _TOLERANCE * np.maximum(1.0, np.abs(np.nan_to_num(polytope.limit, posinf=0.0)))

    def takes(self, candidate: int) -> bool:
        """Add one replica if there is room for it on what is rented or can be."""
        entries = slice(self._use.indptr[candidate], self._use.indptr[candidate + 1])
        rows = self._use.indices[entries]
        used = self._used[rows] + self._use.data[entries]
        if (used > self._limit[rows] + self._most_room[rows]).any():
            return False
        if (used + self._rented[rows] > self._limit[rows]).any():
            machines = self._machines_with(candidate)
            if machines is None:
                return False
            self.machines, self._rented = machines, self.polytope.rent @ machines
        self._used[rows] = used
        self.replicas[candidate] += 1
        return True

    def _machines_with(self, candidate: int) -> IntArray | None:
        chosen = np.union1d(np.flatnonzero(self.replicas), [candidate])
        counts = self.replicas[chosen] + (chosen == candidate)
        return straight_line.machines_for(self.polytope, chosen, counts, self._seconds_left())
