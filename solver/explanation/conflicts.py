"""Why a problem has no plan, and what would have to give by how much.

Asked in the order in which a person would: can anything on this market serve the workload at all, and if not, is it
the latency limit or the memory; by how little would limits have to be raised; if even without limits there is no
fleet, how much can be carried, or how many more GPUs would do. What is found is granted and the changed problem
planned, until it has a fleet: what gives way first may uncover what comes next.

Flow: planner.py -> here -> unserved_conflicts.py, elastic.py -> granting.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from sutler.solver.explanation.binding import resource_unit
from sutler.solver.explanation.condition_conflicts import failed_conditions, without_conditions
from sutler.solver.explanation.elastic import Raised, least_raised, with_share
from sutler.solver.explanation.granting import granted, more_of
from sutler.solver.explanation.unserved_conflicts import (
    demands_of,
    polytope_of,
    unserved_among,
    why_unserved,
    without_limits,
)
from sutler.solver.market.pools import group_offers
from sutler.solver.methods import exact
from sutler.solver.plan import Conflict
from sutler.solver.polytope.objectives import LEAST_LAM, first_goal
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.problem import Offer, Problem
from sutler.solver.progress import SecondsLeft

NOTHING_FOR_RENT = Conflict(
    "offers", 1.0, 0.0, "machines for rent", "wait for the market, or widen the market's filter"
)

_ROUNDS = 6  # chosen: problems that contradict themselves in more ways than this are corrected step by step
_RAISING_TIME_SHARE = 0.6  # of the time that is left; the rest says how much can be carried, or whether it is enough
_PART_S = 2.0  # chosen: enough to find a fleet for a part of the load
_FOUND_GAP = 0.5  # where all that counts is that there is a fleet
_CARRIED_GAP = 0.002  # chosen: how much is carried is stated with a few digits
_CARRIED_NODES = 500  # chosen: some seconds; what is found is carried whether it is proven or not
_ROUNDING = 1e-6  # relative: shares and loads that are stated can be had in spite of the solvers' tolerances
_DIGITS = 4  # as people are shown
_LEFT_TO_LIMITS = 1e-3  # of a load that the market just carries, so that it need not be met to the last digit
_UTILISATION_TRIES = 6  # a MILP each
_UTILISATION_CLOSE = 1.005  # relative: half a percent of utilisation is nothing that anybody sets
_FAST_NETWORK_GB_PER_S = 1e3  # more than any has
_MORE_MACHINES_PER_MODEL = 16  # of each kind, chosen: enough for one replica of a model on small machines


def find_conflicts(problem: Problem, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """What makes `problem` infeasible; at least one entry, what is closest to enough first.

    All of it together is enough: granted(problem, conflicts) has a plan, unless it is None or the time was short.
    """
    bare = without_conditions(problem)
    if bare != problem and not _has_fleet(bare, seconds_left):
        return find_conflicts(bare, seconds_left)
    found: dict[tuple[str, str], Conflict] = {}
    present = problem
    for _ in range(_ROUNDS):
        lacking = _lacking(present, seconds_left)
        for conflict in lacking:
            key = (conflict.constraint, conflict.unit)
            found[key] = _rounded(_merged(found.get(key), conflict))
        changed = granted(problem, found.values())
        if changed is None or not lacking or seconds_left() <= 0 or _has_fleet(changed, seconds_left):
            break
        present = changed
    return tuple(sorted(found.values(), key=_distance)) or (_unknown(problem),)


def _merged(earlier: Conflict | None, later: Conflict) -> Conflict:
    """What a round asks for beyond the rounds before it, said of the problem as it was stated."""
    if earlier is None:
        return later
    if _lowers(later):
        return replace(later, needed=earlier.needed)
    return replace(later, available=earlier.available)


def _lowers(conflict: Conflict) -> bool:
    """What is asked for is to be lowered to what is available, where limits are to be raised to what is needed."""
    is_policy = conflict.constraint.startswith(("headroom", "resilience/"))
    return is_policy or conflict.unit in ("rps", "tokens per request", "replicas")


def _rounded(conflict: Conflict) -> Conflict:
    """The conflict with as many digits as people are shown, on the safe side."""
    if _lowers(conflict):
        return replace(conflict, available=_floored(conflict.available))
    return conflict if conflict.unit == "gpu" else replace(conflict, needed=-_floored(-conflict.needed))


def _floored(value: float) -> float:
    """The next lower number of few digits."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(abs(value))) + 1 - _DIGITS)
    return float(f"{np.floor(value / unit + _ROUNDING) * unit:.{_DIGITS}g}")


def _distance(conflict: Conflict) -> float:
    """The share of what there is by which it falls short."""
    if conflict.available <= 0:
        return np.inf
    return abs(conflict.needed - conflict.available) / conflict.available


def _lacking(problem: Problem, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """What has to give first; () where the problem has a fleet."""
    polytope = polytope_of(without_limits(problem))
    unserved = unserved_among(polytope, demands_of(problem))
    if unserved:
        return why_unserved(problem, unserved, seconds_left)
    whole, wanted = _of_whole_load(polytope)
    limits = {name: limit for name in whole.resources if (limit := _stated_limit(problem, name)) is not None}
    kept_s = (1 - _RAISING_TIME_SHARE) * seconds_left()
    raised = least_raised(whole, limits, wanted, lambda: seconds_left() - kept_s)
    if raised is None and without_conditions(problem) != problem:
        return failed_conditions(problem, lambda changed: _has_fleet(changed, seconds_left), seconds_left)
    if raised is None:
        return _short_of_supply(problem, polytope, seconds_left)
    return tuple(_raised_conflicts(problem, raised, limits))


def _of_whole_load(polytope: Polytope) -> tuple[Polytope, float]:
    """lam in multiples of the offered load, and how much of it a plan carries. Where throughput is maximised any plan
    does that serves everything a little: then one replica has time for whatever it serves, and 1 means everything."""
    problem = polytope.problem
    if problem.objective.maximises_rate:
        return _serving(polytope), 1.0
    return polytope.scaled(problem.total_demand), problem.objective.carried_load


def _serving(polytope: Polytope) -> Polytope:
    """Rates such that a replica serves any mix of what it can serve at all."""
    share = polytope.offered * len(polytope.demands)
    return replace(polytope, rate=np.where(polytope.rate > 0, share[polytope.candidates.model], 0.0))


def _stated_limit(problem: Problem, row: str) -> float | None:
    """The caller's value of a row; None: it is no limit of the caller's."""
    if row == "budget":
        return problem.budget_usd_per_hour
    if not row.startswith("limit/"):
        return None
    kind, _, key = row.removeprefix("limit/").partition("/")
    if kind in ("min_replicas", "min_on_demand_replicas"):
        return None
    by_key = getattr(problem.limits, kind)
    stated: float | None = by_key[key] if isinstance(by_key, Mapping) else by_key
    return None if stated is None else float(stated)


def _raised_conflicts(problem: Problem, raised: Raised, limits: dict[str, float]) -> Iterable[Conflict]:
    for name, needed in raised.values.items():
        if name == "budget":
            remedy = "raise budget_usd_per_hour, use a smaller precision, or widen the market"
        else:
            remedy = f"raise limits.{name.split('/')[1]}"
        yield Conflict(name, needed, limits[name], resource_unit(name), remedy)
    stated = problem.limits.max_share_per_provider_fraction
    if raised.share > stated:
        share = min(1.0, raised.share * (1 + _ROUNDING))
        providers = len({offer.provider for offer in problem.offers})
        remedy = (
            f"with {providers} provider(s) on the market no plan keeps to this share for every workload: raise "
            "limits.max_share_per_provider_fraction (1 always works) or add offers of another provider"
        )
        yield Conflict("limit/max_share_per_provider_fraction", share, stated, "fraction", remedy)


def carried_part(problem: Problem, conflicts: Iterable[Conflict], seconds_left: SecondsLeft) -> float:
    """The largest part of the load, 1 at most, that a fleet was found to carry within all that is set, none to spare;
    0 where some of its requests cannot be served at all. `conflicts`: those of the problem."""
    conflicts = tuple(conflicts)
    if all(conflict.unit == "rps" for conflict in conflicts):
        parts = (conflict.available / conflict.needed for conflict in conflicts)
        carried = min(parts) * (1 + problem.objective.headroom_fraction)
    else:
        # What is to be raised was looked for first, and may have taken all of the time.
        carried = _carried(polytope_of(problem), lambda: max(seconds_left(), _PART_S))
    return min(1.0, carried * (1 - _LEFT_TO_LIMITS))


def _short_of_supply(problem: Problem, free: Polytope, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """What is lacking where nothing that a caller set holds the load back: utilisation, load, or GPUs."""
    if not problem.objective.maximises_rate:
        fuller = _fuller(problem, seconds_left)
        if fuller is not None:
            return (fuller,)
        carried = _carried(polytope_of(problem), seconds_left)
        if carried <= LEAST_LAM:  # the limits allow nothing: they come next
            carried = _carried(with_share(free, 1.0), seconds_left) * (1 - _LEFT_TO_LIMITS)
        if carried > LEAST_LAM:
            return _less_load(problem, carried)
    return _more_machines(problem, seconds_left) or _joined(problem, seconds_left)


def _joined(problem: Problem, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """Machines that no network joins, where joining them would do: prefill fits some and decode others, none both."""
    if problem.search.disaggregation != "only":
        return ()
    joined = (
        replace(offer, site="joined", inter_machine_gb_per_s=_FAST_NETWORK_GB_PER_S) for offer in problem.offers
    )
    if not _has_fleet(without_limits(replace(problem, offers=tuple(joined))), seconds_left):
        return ()
    remedy = (
        "no machine has room for prefill and decode side by side, and no network joins enough of them: offer sites "
        "with inter_machine_gb_per_s (or state market.networks), use a smaller precision, or set "
        "search.disaggregation to auto"
    )
    return (Conflict("network", 1.0, 0.0, "sites with a network between machines", remedy),)


def _carried(polytope: Polytope, seconds_left: SecondsLeft) -> float:
    """The largest multiple of the load that was found to be carried."""
    if not len(polytope.candidates) or not polytope.servable().all():
        return 0.0
    whole = polytope.scaled(polytope.problem.total_demand)
    outcome = exact.minimise(
        whole,
        whole.goal_throughput(),
        relative_gap=_CARRIED_GAP,
        seconds_left=seconds_left,
        node_limit=_CARRIED_NODES,
    )
    return 0.0 if outcome.allocation is None else outcome.allocation.lam * (1 - _ROUNDING)


def _less_load(problem: Problem, carried: float) -> tuple[Conflict, ...]:
    """How much of the load there is room for: with less headroom all of it, or a part."""
    headroom = problem.objective.headroom_fraction
    apart = problem.search.disaggregation == "only"
    or_mix = ", let the network be faster, or set search.disaggregation to auto" if apart else ""
    market = f"the most that was found to be carried within what is set is {_floored(carried):g} times the load"
    if carried >= 1:
        remedy = f"{market}: lower headroom_fraction to {_floored(carried - 1):g}, or add offers{or_mix}"
        return (Conflict("headroom", headroom, carried - 1, "fraction", remedy),)
    part = carried / (1 + headroom)
    return tuple(
        Conflict(
            demand.name,
            demand.fraction * (1 + headroom),
            demand.fraction * carried,
            "rps",
            f"{market}: lower rate_rps to {_floored(demand.fraction * part):g}, or add offers{or_mix}",
        )
        for demand in demands_of(problem)
    )


def _fuller(problem: Problem, seconds_left: SecondsLeft) -> Conflict | None:
    """The least utilisation at which the market carries the load, where a lower one is what holds it back."""
    name, stated = "max_utilisation_fraction", problem.limits.max_utilisation_fraction
    if stated is None or stated >= 1:
        return None
    wanted = problem.objective.carried_load

    def carried_at(fraction: float) -> float:
        limits = replace(problem.limits, max_utilisation_fraction=fraction)
        free = polytope_of(without_limits(replace(problem, limits=limits)))
        return _carried(with_share(free, 1.0), seconds_left)

    if carried_at(1.0) < wanted:
        return None
    low, high = stated, 1.0
    tried = stated * wanted / max(carried_at(stated), LEAST_LAM) * (1 + _CARRIED_GAP)
    for _ in range(_UTILISATION_TRIES):
        if high <= low * _UTILISATION_CLOSE or seconds_left() <= 0:
            break
        tried = tried if low < tried < high else (low * high) ** 0.5
        low, high = (low, tried) if carried_at(tried) >= wanted else (tried, high)
        tried = high / (_UTILISATION_CLOSE + _ROUNDING)
    remedy = f"no fleet of this market carries the load at this utilisation: raise limits.{name}, or add offers"
    return Conflict(f"limit/{name}", high, stated, "fraction", remedy)


def _more_machines(problem: Problem, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """How many more GPUs of which kind let everything be served at all: the fewest."""
    own = len(problem.offers)
    pools, pool_of = group_offers(problem)
    alike: dict[tuple[int, int], list[Offer]] = {}
    for offer, number in zip(problem.offers, pool_of, strict=True):
        alike.setdefault((number, offer.gpus), []).append(offer)
    most = _MORE_MACHINES_PER_MODEL * len(problem.models)
    more = [more_of(offers, most) for offers in alike.values()]
    more = [replace(o, price_usd_per_hour=o.price_usd_per_hour * (1 + _ROUNDING)) for o in more]  # classes apart
    larger = polytope_of(without_limits(replace(problem, offers=(*problem.offers, *more))))
    polytope = _serving(with_share(larger, 1.0))
    classes = polytope.supply.classes
    added = np.array([float(c.gpus) if c.offers[0][0] >= own else 0.0 for c in classes])
    goal = Goal(0.0, np.zeros(len(polytope.candidates)), added, 1.0)
    outcome = exact.minimise(
        polytope, goal, relative_gap=_CARRIED_GAP, seconds_left=seconds_left, node_limit=_CARRIED_NODES
    )
    if outcome.allocation is None:
        return ()
    conflicts = []
    for index in np.flatnonzero((outcome.allocation.rented > 0) & (added > 0)).tolist():
        kind, gpus = polytope.supply.kind_of(classes[index]), classes[index].gpus
        pool = pools[kind]
        there = sum(offer.gpus * offer.available for offer in alike[kind, gpus])
        needed = there + gpus * int(outcome.allocation.rented[index])
        remedy = f"wait for or add offers of {pool.gpu} in machines of {gpus}, or widen market.filter"
        conflicts.append(Conflict(f"supply/{pool.name}/{gpus}", float(needed), float(there), "gpu", remedy))
    return tuple(conflicts)


def _has_fleet(problem: Problem, seconds_left: SecondsLeft) -> bool:
    polytope = prepare(problem)
    scaled = scaled_to_one(polytope) if polytope.servable().all() else None
    if scaled is None:
        return False
    outcome = exact.minimise(scaled, first_goal(scaled), relative_gap=_FOUND_GAP, seconds_left=seconds_left)
    return outcome.allocation is not None and outcome.allocation.lam >= LEAST_LAM


def _unknown(problem: Problem) -> Conflict:
    limit = problem.options.time_limit_s
    remedy = "the search for what has to give found nothing in this time: raise solver.time_limit_s"
    return Conflict("solver/time_limit_s", 10 * limit, limit, "s", remedy)
