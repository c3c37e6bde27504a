"""Many models on one market, each searched by itself (Dantzig-Wolfe decomposition over models).

Models meet only in the machines and the money that all of them need. With a price for each resource, the cheapest
fleet that carries a load is a small search for each model alone; what these fleets cost, less what the resources are
worth, is no more than any plan costs (the Lagrangian bound: Geoffrion, Mathematical Programming Study 2, 1974). It
counts whole replicas, which the relaxation does not. An LP over the fleets found so far gives the next prices, a MILP
over them a plan. Where load is maximised, loads are tried: what is proven to cost more than the budget is out of
reach.

Layouts that were not rated (polytope/by_need.py) stand among the others with what they carry at most, so that bounds
cover plans with them as well, and are nearly as close: few of the best fleets have any.

Flow: exact.minimise -> prove (here) <-> exact.minimise of each model alone, at a load and prices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.answer.routing import route
from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.methods.fleets import adopt
from sutler.solver.methods.search import ROUNDING, Search, SearchOutcome
from sutler.solver.polytope.column_generation import bound_of_resources, lam_column
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.linear import LinearProgram, solve_lp, solve_milp
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.one_model import LEAST_MODELS, of_one_model
from sutler.solver.polytope.preparation import with_more
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.progress import SecondsLeft

SolveOne = Callable[[Polytope, Goal, Allocation | None, SearchOutcome | None], SearchOutcome]
"""Minimise a goal of one model: from a plan that is known, and an outcome at the same load and other prices."""

# What steers the search, chosen: bounds and plans hold with any of it.
_WORTH: Final = 0.004  # relative: where whole replicas cost so little more than the relaxed, MILPs find more
_LOADS: Final = 8  # that are tried
_FIRST_LOAD: Final = 0.98  # of what is not known to be out of reach: where plans begin to exist
_RATES: Final = 3  # of loads that are tried at the relaxation's prices: each is nearer to what the budget carries
_ROUNDS: Final = 30  # of prices at a load
_PATIENCE: Final = 5  # rounds that move nothing: the bound, and at one load alone the LP
_PLAN_EVERY: Final = 8  # rounds, since time may end before prices settle
_TOWARDS_LP: Final = 0.5  # of the way from the best prices to the LP's, which jump (Wentges, ITOR 1997)
_CLOSE: Final = 0.3  # of the gap: what is nearer tells no more
_DEAREST: Final = 3.0  # times its first price a resource costs at most in the LP, while fleets are few
_NODES: Final = 500  # of a MILP over fleets


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Replicas of one model, the load that they carry, and what they use of each resource [R]."""

    model: int
    candidate: IntArray
    replicas: FloatArray
    carried: float
    used: FloatArray


def is_possible(polytope: Polytope) -> bool:
    """Whether many models meet in rentals and other resources alone, and something bounds what they cost."""
    is_bounded = not polytope.problem.objective.maximises_rate or np.isfinite(polytope.limit[_budget(polytope)])
    meet_elsewhere = bool(polytope.shares) or polytope.problem.keeps_reserve
    return (
        len(polytope.cost_rent) > 0 and is_bounded and not meet_elsewhere and len(_models(polytope)) >= LEAST_MODELS
    )


def prove(search: Search, solve_one: SolveOne, seconds_left: SecondsLeft) -> None:
    """Better plans and a bound for the whole problem, as far as either moves."""
    apart = _Apart(search, solve_one, seconds_left)
    if search.goal.lam_weight < 0:
        apart.maximise_load()
    else:
        apart.minimise_cost()


def _models(polytope: Polytope) -> list[int]:
    found: list[int] = np.unique(polytope.candidates.model).tolist()
    return found


def _budget(polytope: Polytope) -> int:
    return polytope.resources.index("budget")


class _Apart:
    """Fleets of each model so far, and the prices of resources [R] under which they were found."""

    def __init__(self, search: Search, solve_one: SolveOne, seconds_left: SecondsLeft) -> None:
        self._search, self._solve_one, self._seconds_left = search, solve_one, seconds_left
        polytope, self._maximises = search.polytope, search.goal.lam_weight < 0
        self._rated = len(polytope.candidates)  # those after them are hopes
        if search.hopes is not None:
            polytope = with_more(polytope, search.hopes)
        self._limit = polytope.limit
        self._polytope = polytope.with_limit("budget", np.inf) if self._maximises else polytope
        self._parts = [of_one_model(self._polytope, model) for model in _models(polytope)]
        self._before: dict[tuple[int, float], SearchOutcome] = {}  # by model and load, at the last prices
        self._fleets: list[_Fleet] = []
        self._known: set[tuple[bytes, bytes]] = set()
        self._duals = self._dearest = np.zeros(len(polytope.limit))
        self._rent = polytope.rent.toarray()

    def minimise_cost(self) -> None:
        search = self._search
        goal = search.goal if search.hopes is None else first_goal(self._polytope)
        self._start(goal)
        found = self._bound_at(goal, self._duals)
        self._raise_bound(goal, found)
        if found - search.relaxation.bound >= _WORTH * abs(found):
            self._settle(goal)

    def maximise_load(self) -> None:
        search, polytope = self._search, self._search.polytope
        budget = float(polytope.limit[_budget(polytope)]) * (1 + ROUNDING)
        highest, close = -search.relaxation.bound, -search.relaxation.bound * search.relative_gap * _CLOSE
        lam, slope, gained = highest, self._start(self._goal(highest)), 0.0
        if slope <= 0 or not np.isfinite(budget):
            return  # money is not what is short
        for _ in range(_RATES):
            cost = self._bound_at(self._goal(lam), self._duals)
            if lam == highest:
                gained = cost / budget - 1
            if cost > budget:
                highest = lam
                self._proven(-highest)
            lam = min(lam + (budget - cost) / slope + close, highest)
            if not close <= highest - lam < highest or not self._goes_on():
                break
        lam = _FIRST_LOAD * highest
        for _ in range(_LOADS if gained >= _WORTH else 0):
            cost = self._settle(self._goal(lam), budget)
            if cost > budget:
                highest = min(highest, lam)
                self._proven(-highest)
            if not self._goes_on() or not np.isfinite(cost):
                break
            reached = lam + (budget - cost) / slope + close
            if not np.isfinite(search.value):
                lam *= _FIRST_LOAD
            elif reached < highest - 2 * close:
                lam = reached
            else:
                lam = (highest - search.value) / 2

    def _goes_on(self) -> bool:
        return not self._search.closed() and self._seconds_left() > 0

    def _goal(self, lam: float) -> Goal:
        return self._polytope.goal_cost(lam)

    def _start(self, goal: Goal) -> float:
        """The relaxation's prices at a load; returns what another unit of it costs."""
        relaxation = solve_relaxation(self._polytope, goal, columns=self._search.relaxation.columns)
        self._duals = relaxation.resource_duals
        prices = np.abs(self._duals)
        mean = prices[prices > 0].mean() if prices.any() else 1.0
        self._dearest = _DEAREST * np.maximum(prices, mean)
        return float(-lam_column(self._polytope) @ relaxation.demand_duals)

    def _settle(self, goal: Goal, enough: float = np.inf) -> float:
        """What the goal's load costs at least, with prices that settle, and plans on the way. `enough`: a limit that
        no plan may cost more than."""
        search, best, tried = self._search, -np.inf, self._duals
        close = _CLOSE * search.relative_gap
        moved, is_lp, least = 0, False, np.inf
        for number in range(_ROUNDS):
            known, found = len(self._fleets), self._bound_at(goal, tried)
            if found > best + close * abs(best) or not np.isfinite(best):
                moved = number
            if found > best:
                best, self._duals = found, tried
            self._raise_bound(goal, best)
            grown = len(self._fleets) > known
            if best > enough or not self._goes_on() or number - moved >= _PATIENCE or (is_lp and not grown):
                break
            lp = self._lp(goal)
            if lp is None:
                break
            value, duals, is_lacking = lp
            if not self._maximises and value < least - close * abs(value):
                moved, least = number, value
            if value - best <= close * abs(value) and not is_lacking.any():
                break
            self._dearest = np.where(is_lacking & ~grown, _DEAREST * self._dearest, self._dearest)
            is_lp = not grown
            tried = duals if is_lp else self._duals + _TOWARDS_LP * (duals - self._duals)
            if number % _PLAN_EVERY == _PLAN_EVERY - 1:
                self._plan(goal)
        if best <= enough:
            self._plan(goal)
        return best

    def _raise_bound(self, goal: Goal, bound: float) -> None:
        search = self._search
        if not self._maximises:
            self._proven(bound)
        search.report("models apart", search.value, max(search.bound, search.relaxation.bound))

    def _proven(self, bound: float) -> None:
        """That no plan is better, with hopes or without."""
        search = self._search
        search.bound, search.covered = max(search.bound, bound), max(search.covered, bound)

    def _bound_at(self, goal: Goal, duals: FloatArray) -> float:
        """The Lagrangian bound at duals of resources, none above 0; the fleets that attain it are kept."""
        polytope = self._polytope
        price = goal.use_cost - polytope.use.T @ duals
        reduced_rent = goal.rent_cost - polytope.rent.T @ duals
        bound = bound_of_resources(polytope, duals, np.zeros(len(price)), reduced_rent)
        for number, (part, rows) in enumerate(self._parts):
            own = Goal(0.0, price[rows], np.zeros(0), goal.lam_lower)
            before = self._before.get((number, goal.lam_lower))  # what it knows holds for no other load
            found = self._solve_one(part, own, self._cheapest(number, own), before)
            bound += found.bound
            self._before[number, goal.lam_lower] = found
            if found.allocation is not None:
                self._keep(number, found.allocation, goal.lam_lower)
        return bound

    def _cheapest(self, number: int, goal: Goal) -> Allocation | None:
        """Of a model's fleets that carry the load, the one that costs the least."""
        rows = self._parts[number][1]
        able = [fleet for fleet in self._fleets if fleet.model == number and fleet.carried >= goal.lam_lower]
        if not able:
            return None
        placed = [(np.searchsorted(rows, fleet.candidate), fleet) for fleet in able]
        candidate, best = min(placed, key=lambda one: float(goal.use_cost[one[0]] @ one[1].replicas))
        return Allocation(candidate, best.replicas.astype(np.int64), np.zeros(0, dtype=np.int64), best.carried)

    def _keep(self, number: int, allocation: Allocation, least: float) -> None:
        """A fleet that carries `least`, or more."""
        part, rows = self._parts[number]
        candidate, replicas = rows[allocation.candidate], allocation.replicas.astype(np.float64)
        key = (candidate.tobytes(), replicas.tobytes())
        if key not in self._known:
            self._known.add(key)
            used = self._polytope.use[:, candidate] @ replicas
            carried = max(route(part, allocation).lam, least)
            self._fleets.append(_Fleet(number, candidate, replicas, carried, used))

    def _lp(self, goal: Goal) -> tuple[float, FloatArray, BoolArray] | None:
        """Value and duals of the LP over fleets, and which resources it buys more of than there are; None where no
        fleet of some model is known."""
        fleets = self._carrying(goal, len(self._polytope.candidates))
        if not fleets:
            return None
        found = solve_lp(self._program(goal, fleets, len(self._polytope.limit)))
        assert found.x is not None  # what is lacking is bought
        is_lacking = found.x[len(goal.rent_cost) + len(fleets) :] > ROUNDING
        return found.objective, np.minimum(found.row_duals[len(self._parts) :], 0.0), is_lacking

    def _plan(self, goal: Goal) -> None:
        """The cheapest plan of known fleets that carry the load."""
        search, polytope = self._search, self._search.polytope
        fleets = self._carrying(goal, self._rated)
        if not fleets:
            return
        program = self._program(goal, fleets, 0)
        program = replace(
            program,
            row_upper=np.append(np.ones(len(self._parts)), self._limit),
            integer=np.ones(len(program.cost), dtype=np.bool_),
        )
        found = solve_milp(
            program, relative_gap=search.relative_gap, time_limit_s=search.seconds_left(), node_limit=_NODES
        )
        if found.x is None:
            return
        num_rent = len(goal.rent_cost)
        taken = [fleet for fleet, share in zip(fleets, found.x[num_rent:], strict=True) if share > 0]
        candidate = np.concatenate([fleet.candidate for fleet in taken])
        replicas = np.concatenate([fleet.replicas for fleet in taken]).astype(np.int64)
        carried = min(fleet.carried for fleet in taken)
        adopt(search, FleetBounds(polytope), candidate, replicas, found.x[:num_rent].astype(np.int64), carried)
        search.report("models apart", search.value, max(search.bound, search.relaxation.bound))

    def _carrying(self, goal: Goal, among: int) -> list[_Fleet]:
        """The fleets of the first so many candidates that carry the load; none where a model has none."""
        able = [fleet for fleet in self._fleets if fleet.carried >= goal.lam_lower]
        able = [fleet for fleet in able if (fleet.candidate < among).all()]
        return able if len({fleet.model for fleet in able}) == len(self._parts) else []

    def _program(self, goal: Goal, fleets: Sequence[_Fleet], lacking: int) -> LinearProgram:
        """The LP over rentals, fleets, and what is lacking of the first so many resources."""
        polytope = self._polytope
        models, num_rent, resources = len(self._parts), len(goal.rent_cost), len(polytope.limit)
        of_model = np.zeros((models, len(fleets)))
        of_model[[fleet.model for fleet in fleets], np.arange(len(fleets))] = 1.0
        blocks = [
            [np.zeros((models, num_rent)), of_model, np.zeros((models, lacking))],
            [self._rent, np.array([fleet.used for fleet in fleets]).T, -np.eye(resources)[:, :lacking]],
        ]
        cost = [float(goal.use_cost[fleet.candidate] @ fleet.replicas) for fleet in fleets]
        columns = num_rent + len(fleets) + lacking
        return LinearProgram(
            cost=np.concatenate([goal.rent_cost, cost, self._dearest[:lacking]]),
            matrix=csr_array(np.block(blocks)),
            row_lower=np.append(np.ones(models), np.full(resources, -np.inf)),
            row_upper=np.append(np.ones(models), polytope.limit),
            lower=np.zeros(columns),
            upper=np.concatenate([polytope.rent_upper, np.ones(len(fleets)), np.full(lacking, np.inf)]),
            integer=np.zeros(columns, dtype=np.bool_),
        )
