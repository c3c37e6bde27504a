"""The least by which limits have to be raised until the whole load has a fleet, found by the planner's own search.

Every limit row gets a column that raises it, in small steps priced relative to the limit: ten percent more budget
are as dear as ten percent more watts. What the exact search then minimises is the sum of these prices. The share per
provider stands in rows that rates stand in, and is found by halving.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, hstack

from sutler.solver.methods import exact
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Goal, Polytope
from sutler.solver.progress import SecondsLeft

_GAP = 1e-4  # a step, so that what is asked for is the least by that
_NODES = 2000  # chosen: what has to give is worth seconds, and time_limit_s ends what takes longer
_STEPS = 1e4  # in which a limit, or the least that is needed if that is more, is raised
_MOST_STEPS = 1e7  # a thousand times the limit: more is none that anybody raises it by
_HALVINGS = 7  # a MILP each; they find the share to within a 128th of what is between it and 1
_NOTHING = 1e-9  # what sums of floats may be off by


@dataclass(frozen=True, slots=True)
class Raised:
    """What a fleet needs: `values` of the rows that it breaks, by name, and a `share` per provider.

    `price`: the sum of relative rises of the rows.
    """

    values: Mapping[str, float]
    share: float
    price: float


def least_raised(
    polytope: Polytope, limits: Mapping[str, float], wanted: float, seconds_left: SecondsLeft
) -> Raised | None:
    """What the fleet that breaks the limits least, and carries `wanted`, needs of them. None: no fleet was found.

    `polytope`: without limits on resources, its share per provider as the caller set it. `limits`: by row.
    """
    stated = polytope.problem.limits.max_share_per_provider_fraction
    here = _raised(polytope, limits, wanted, seconds_left)
    if stated >= 1 or (here is not None and here.price <= _NOTHING):
        return here
    best = _raised(with_share(polytope, 1.0), limits, wanted, seconds_left)
    if best is None or (here is not None and here.price <= best.price + _GAP):
        return here
    enough = {**limits, **best.values}
    low, high = stated, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        found = _raised(with_share(polytope, share), enough, wanted, seconds_left)
        low, high = (low, share) if found is not None and found.price <= _NOTHING else (share, high)
    price = best.price + (high - stated) / stated
    return here if here is not None and here.price <= price else replace(best, share=high, price=price)


def with_share(polytope: Polytope, share: float) -> Polytope:
    """The same polytope with another share per provider."""
    limits = replace(polytope.problem.limits, max_share_per_provider_fraction=share)
    shares = tuple(
        replace(one, fraction=share) if one.name.startswith("max_share_per_provider_fraction/") else one
        for one in polytope.shares
    )
    return replace(polytope, problem=replace(polytope.problem, limits=limits), shares=shares)


def _raised(
    polytope: Polytope, limits: Mapping[str, float], wanted: float, seconds_left: SecondsLeft
) -> Raised | None:
    elastic = _elastic(polytope, limits, wanted)
    if elastic is None:
        return None
    outcome = exact.minimise(*elastic, relative_gap=_GAP, seconds_left=seconds_left, node_limit=_NODES)
    fleet = outcome.allocation
    if fleet is None:
        return None
    rented = fleet.rented[: polytope.rent.shape[1]]
    used = polytope.use[:, fleet.candidate] @ fleet.replicas + polytope.rent @ rented
    broken = {
        name: float(needed)
        for name, needed in zip(polytope.resources, used, strict=True)
        if name in limits and needed > limits[name] * (1 + _NOTHING) + _NOTHING
    }
    price = sum((needed - limits[name]) / _scale(name, limits[name]) for name, needed in broken.items())
    return Raised(broken, polytope.problem.limits.max_share_per_provider_fraction, price)


def _elastic(polytope: Polytope, limits: Mapping[str, float], wanted: float) -> tuple[Polytope, Goal] | None:
    """The polytope with columns that raise limits, and their price as the goal; None: no relaxed fleet carries it."""
    rows = [row for row, name in enumerate(polytope.resources) if name in limits]
    limit, steps = polytope.limit.copy(), np.ones(len(rows))
    for position, row in enumerate(rows):
        name = polytope.resources[row]
        limit[row] = limits[name]
        if name in _CONTINUOUS:
            goal = Goal(0.0, polytope.use[[row]].toarray()[0], polytope.rent[[row]].toarray()[0], wanted)
            least = solve_relaxation(polytope, goal).objective
            if not np.isfinite(least):
                return None
            steps[position] = max(limits[name], least, _NOTHING) / _STEPS
    raising = csr_array((-steps, (rows, np.arange(len(rows)))), shape=(len(limit), len(rows)))
    nothing = np.zeros(len(rows))
    elastic = replace(
        polytope,
        limit=limit,
        rent=csr_array(hstack([polytope.rent, raising], format="csr")),
        cost_rent=np.append(polytope.cost_rent, nothing),
        watts_rent=np.append(polytope.watts_rent, nothing),
        rent_upper=np.append(polytope.rent_upper, nothing + _MOST_STEPS),
        curve_of=np.append(polytope.curve_of, np.full(len(rows), -1)),
    )
    scales = np.array([_scale(polytope.resources[row], limit[row]) for row in rows])
    prices = np.append(np.zeros(len(polytope.cost_rent)), steps / scales)
    return elastic, Goal(0.0, np.zeros(len(polytope.cost_use)), prices, wanted)


_CONTINUOUS = ("budget", "limit/max_power_watts")


def _scale(name: str, limit: float) -> float:
    """What a rise of a limit is measured by: the limit itself, or one GPU, where there is none."""
    return limit if limit > 0 and name in _CONTINUOUS else max(1.0, limit)
