"""What is left of a plan when something is lost: which replicas fall, what the others carry, and how they are routed.

Flow: packing.py and describe.py say where the replicas of a fleet stand -> losses_of (here) -> Plan.losses. The exact
method asks machines_of alone, of every fleet that may become a plan.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sutler.solver.answer.packing import PackedReplica, Placement
from sutler.solver.answer.pairing import handed_over
from sutler.solver.answer.routes import routes_of
from sutler.solver.answer.routing import Routing, route
from sutler.solver.arrays import IntArray
from sutler.solver.market.losses import KINDS, Whereabouts, falls, machine_names, names_of
from sutler.solver.plan import Loss, Rental
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import LossKind, Offer, Problem

Fallen = tuple[int, ...]
"""Numbers of the replicas that a loss takes away."""


def machines_of(problem: Problem, rentals: Sequence[Rental], placed: Sequence[PackedReplica]) -> dict[str, Fallen]:
    """The replicas that stand on each rented machine, by its name."""
    names = machine_names(rentals, [offer.machine_id for offer in _offers_of(problem, rentals)])
    fallen: dict[str, set[int]] = {name: set() for name in names.values()}
    for replica, one in enumerate(placed):
        for stage in one.stages:
            fallen[names[stage.rental, stage.machine]].add(replica)
    return {name: tuple(sorted(replicas)) for name, replicas in fallen.items()}


def fallen_with(
    kind: LossKind, problem: Problem, rentals: Sequence[Rental], placed: Sequence[PackedReplica]
) -> dict[str, Fallen]:
    """The replicas that fall with everything of a kind that can be lost, by its name."""
    if kind == "machine":
        return machines_of(problem, rentals, placed)
    where = [Whereabouts(one.provider, one.region, one.contract) for one in _offers_of(problem, rentals)]
    return {
        name: tuple(
            number
            for number, one in enumerate(placed)
            if any(falls(kind, name, where[stage.rental]) for stage in one.stages)
        )
        for name in names_of(kind, where)
    }


def losses_of(polytope: Polytope, allocation: Allocation, placement: Placement, lam: float) -> tuple[Loss, ...]:
    """What is left of a fleet that carries `lam`, in the polytope's scale: after every loss of the kinds that are to
    be survived, and after the worst of each other kind; worst first."""
    problem, after, found = polytope.problem, polytope.without_shares(), []
    load = lam if polytope.losses.load_rps is None else polytope.losses.load_rps / polytope.scale_rps
    routed: dict[tuple[object, ...], tuple[Allocation, Routing]] = {}
    itself, alike = np.arange(len(polytope.rate)), _alike(polytope, allocation.candidate)
    for kind in KINDS:
        is_asked, of_kind = kind in problem.resilience.survive, []
        told_apart = itself if is_asked else alike  # of a loss that nobody asked for, only what it leaves is stated
        for name, fallen in fallen_with(kind, problem, placement.rentals, placement.replicas).items():
            counts = Counter(placement.replicas[number].candidate for number in fallen)
            key = (is_asked, *sorted(Counter(told_apart[list(counts.elements())].tolist()).items()))
            if key not in routed:
                left = _without(allocation, counts)
                routed[key] = (left, route(after, left))
            of_kind.append((kind, name, fallen, *routed[key]))
        of_kind.sort(key=lambda loss: (loss[4].lam, loss[1]))
        for _, name, fallen, left, routing in of_kind if is_asked else of_kind[:1]:
            standing = _standing(placement, fallen)
            found.append(
                Loss(
                    kind,
                    name,
                    tuple(placement.names[number] for number in fallen),
                    min(1.0, routing.lam / load) if load > 0 else 0.0,
                    routes_of(after, left, routing, standing) if is_asked else (),
                    handed_over(after, left, routing, standing) if is_asked else (),
                )
            )
    return tuple(sorted(found, key=lambda loss: loss.carried_fraction))


def _alike(polytope: Polytope, used: IntArray) -> IntArray:
    """[C] the same number for those used of which a fleet carries as much, whichever it has: in a fleet that runs,
    every replica is a candidate of its own."""
    of, found = polytope.candidates, np.zeros(len(polytope.rate), dtype=np.int64)
    rows = np.column_stack([of.model[used], of.role[used], polytope.flow_of[used], polytope.rate[used]])
    found[used] = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return found


def _without(allocation: Allocation, fallen: Mapping[int, int]) -> Allocation:
    """The fleet without so many replicas, by candidate."""
    counts = np.array([fallen.get(c, 0) for c in allocation.candidate.tolist()])
    left = allocation.replicas - counts
    kept = left > 0
    return replace(allocation, candidate=allocation.candidate[kept], replicas=left[kept])


def _standing(placement: Placement, fallen: Fallen) -> Placement:
    """The replicas that are left, where they stand."""
    kept = [number for number in range(len(placement.replicas)) if number not in set(fallen)]
    replicas = tuple(placement.replicas[number] for number in kept)
    return replace(placement, replicas=replicas, names=tuple(placement.names[number] for number in kept))


def _offers_of(problem: Problem, rentals: Iterable[Rental]) -> list[Offer]:
    """The offer behind each rental."""
    by_key: dict[tuple[str, str, str, bool], list[Offer]] = defaultdict(list)
    for offer in problem.offers:
        by_key[offer.provider, offer.offer_id, offer.contract, offer.held].append(offer)
    found = []
    for rental in rentals:
        alike = by_key[rental.provider, rental.offer_id, rental.contract, rental.held]
        found.append(next((one for one in alike if one.gpus == rental.gpus), alike[0]))
    return found
