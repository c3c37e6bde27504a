"""What is spent on the low end of the bands and on fewer parts, once the objective is settled.

Near-optimal fleets differ little in price and much in risk: some carry two thirds of the load where every rate turns
out to be at the low end of its band, others nearly all of it. Each search here is a small MILP near a known fleet,
with two routings of the same replicas: one at the rates themselves, which carries what is held, one at the low ends.
Nothing is proven; a fleet that is not better is left.

Flow: finishing.py holds cost and throughput -> most_at_low, fewest_parts; giving_up.py -> these and cheapest.
"""

from dataclasses import dataclass, replace

import numpy as np

from sutler.solver.answer.routing import route, without_idle
from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.methods.search import nearby_classes, objective_of, surviving
from sutler.solver.methods.with_routing import RENTAL_HEURISTIC_EFFORT
from sutler.solver.polytope.linear import solve_milp
from sutler.solver.polytope.milp import Allocation, Milp, build_milp, with_kinds_counted, with_second_routing
from sutler.solver.polytope.objectives import FINISH_NODE_LIMIT, FINISH_RELATIVE_GAP, held_at
from sutler.solver.polytope.relaxation import Relaxation, solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.progress import SecondsLeft

_WORTH = 1e-3  # of the load, chosen: less is not worth another fleet
_ROUNDING = 1e-6  # HiGHS's mip_feasibility_tolerance
_HELD = 1e-9  # of the load at the low end: less for fewer parts is no tie


@dataclass(frozen=True, slots=True)
class SearchEffort:
    """How wide a search is: columns of the best for the objective, as many of the best for the goal, at least so many
    of each model; classes of machines, cheapest first, beside those that the fleet or a relaxation rents; nodes."""

    columns: int
    columns_per_model: int
    classes: int
    nodes: int


# Chosen: ties are next to the fleet and are looked for in every solve, so that they take a fraction of a second.
TIES = SearchEffort(columns=8, columns_per_model=2, classes=12, nodes=FINISH_NODE_LIMIT)
PARTS = SearchEffort(columns=4, columns_per_model=2, classes=12, nodes=10)
WIDE = SearchEffort(columns=40, columns_per_model=8, classes=40, nodes=300)  # with 8 columns half the gain is missed


@dataclass(frozen=True, slots=True)
class Leeway:
    """Fleets within the limits of `polytope` that carry `least_lam` at the rates themselves.

    `relaxation`: of the objective, over the same candidates; it tells which of them no such fleet can have.
    """

    polytope: Polytope
    least_lam: float
    relaxation: Relaxation
    seconds_left: SecondsLeft
    effort: SearchEffort = TIES

    def at_low(self, allocation: Allocation) -> float:
        """The load that a fleet carries at the low end of all bands."""
        return route(self.polytope.at("low"), allocation).lam

    def survivors(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Candidates and machine counts that a fleet in the room can have, by their reduced costs."""
        limits = {"min_cost": "budget", "min_power": "limit/max_power_watts"}
        row = limits.get(self.polytope.problem.objective.kind)
        worst = -self.least_lam if row is None else float(self.polytope.limit[self.polytope.resources.index(row)])
        return surviving(self.polytope, self.relaxation, worst - self.relaxation.bound)


def most_at_low(room: Leeway, allocation: Allocation) -> Allocation:
    """The fleet in the room that carries the most at the low end."""
    before = room.at_low(allocation)
    if room.seconds_left() <= 0 or _was_the_objective(room):
        return allocation
    low = room.polytope.at("low")
    relaxation = solve_relaxation(low, low.goal_throughput(), start=allocation.candidate)
    if -relaxation.bound <= before * (1 + FINISH_RELATIVE_GAP):
        return allocation
    nothing = Goal(0.0, np.zeros_like(low.cost_use), np.zeros_like(low.cost_rent), room.least_lam)
    milp = _milp(room, nothing, allocation, relaxation)
    milp = with_second_routing(milp, low, weight=-1.0, least_lam=before * (1 + _WORTH))
    found = _found(room, milp)
    return allocation if found is None or room.at_low(found) <= before * (1 + _WORTH / 2) else found


def _was_the_objective(room: Leeway) -> bool:
    """The most load has been sought, and low ends are no lower than rates."""
    candidates = room.polytope.candidates
    return room.polytope.problem.objective.maximises_rate and bool((candidates.low_rps >= candidates.rps).all())


def cheapest(room: Leeway, allocation: Allocation) -> Allocation:
    """The cheapest fleet in the room that carries as much at the low end; by min_power, of those that draw least."""
    polytope = room.polytope
    goals = [polytope.goal_cost(room.least_lam)]
    if polytope.problem.objective.kind == "min_power":
        goals.insert(0, polytope.goal_power(room.least_lam))
    for goal in goals:
        found = _holding(room, goal, allocation)
        if found is not None and objective_of(goal, found) < objective_of(goal, allocation):
            allocation = found
        room = replace(room, polytope=held_at(room.polytope, allocation))
    return allocation


def fewest_parts(room: Leeway, allocation: Allocation) -> Allocation:
    """The fleet in the room that has the fewest parts and carries as much at the low end.

    Parts are stages, kinds of replica, machines and providers, one as good as the other.
    """
    stages = (room.polytope.candidates.tensor_parallel > 0).sum(axis=1).astype(np.float64)
    goal = Goal(0.0, stages, np.ones_like(room.polytope.cost_rent), room.least_lam)

    def parts(fleet: Allocation) -> float:
        rented = np.flatnonzero(fleet.rented)
        providers = {room.polytope.supply.classes[k].provider for k in rented.tolist()}
        return objective_of(goal, fleet) + len(fleet.candidate) + len(providers)

    kinds = len({demand.model for demand in room.polytope.demands if demand.fraction > 0})  # at least one for each
    providers = 0 if room.polytope.supply.gpu_price_usd_per_hour else 1
    fewer = parts(allocation) - 1 - kinds - providers
    found = _holding(replace(room, effort=PARTS), goal, allocation, counts_kinds=True, most=fewer)
    return allocation if found is None or parts(found) >= parts(allocation) - _ROUNDING else found


def _holding(
    room: Leeway, goal: Goal, allocation: Allocation, *, counts_kinds: bool = False, most: float = np.inf
) -> Allocation | None:
    """The fleet found for another goal that carries as much at the low end; None: none that does, or none at whole
    numbers of the goal up to `most`."""
    if room.seconds_left() <= 0:
        return None
    low, least_lam = room.polytope.at("low"), room.at_low(allocation) * (1 - _HELD)
    relaxation = solve_relaxation(low, replace(goal, lam_lower=least_lam), start=allocation.candidate)
    if not np.isfinite(relaxation.objective) or np.ceil(relaxation.bound * (1 - _ROUNDING) - _ROUNDING) > most:
        return None
    milp = _milp(room, goal, allocation, relaxation)
    milp = with_second_routing(milp, low, weight=0.0, least_lam=least_lam)
    if counts_kinds:
        milp = with_kinds_counted(milp, room.polytope)
    found = _found(room, milp)
    return None if found is None or room.at_low(found) < least_lam * (1 - _ROUNDING) else found


def _milp(room: Leeway, goal: Goal, allocation: Allocation, relaxation: Relaxation) -> Milp:
    """Over the fleet's own candidates, and of those that a fleet in the room can have the best for objective and
    goal."""
    (able, rent_lower, rent_upper), model = room.survivors(), room.polytope.candidates.model
    near = nearby_classes(allocation.rented, (room.relaxation, relaxation), room.effort.classes)
    chosen = [allocation.candidate]
    for reduced in (room.relaxation.reduced_cost_use, relaxation.reduced_cost_use):
        best = able[np.argsort(reduced[able], kind="stable")]
        chosen.append(best[: room.effort.columns])
        chosen += [best[model[best] == each][: room.effort.columns_per_model] for each in np.unique(model)]
    return build_milp(
        room.polytope,
        goal,
        np.unique(np.concatenate(chosen)),
        rent_lower=np.minimum(rent_lower, allocation.rented),
        rent_upper=np.where(near, np.maximum(rent_upper, allocation.rented), 0.0),
    )


def _found(room: Leeway, milp: Milp) -> Allocation | None:
    """What a MILP finds, without what would be idle."""
    solution = solve_milp(
        milp.program,
        relative_gap=FINISH_RELATIVE_GAP,
        time_limit_s=room.seconds_left(),
        node_limit=room.effort.nodes,
        heuristic_effort=RENTAL_HEURISTIC_EFFORT,
    )
    if solution.x is None:
        return None
    found, routing = without_idle(room.polytope, milp.read(solution))
    return None if routing.lam < room.least_lam * (1 - _ROUNDING) else replace(found, lam=routing.lam)
