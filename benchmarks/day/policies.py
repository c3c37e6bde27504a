"""Who decides on the fleet: the ways to run a deployment that the day compares, but for sutler's own (sutler.py).

A policy is asked after every poll, unless a change is still under way. It sees the market without what is rented
already, what is rented, and the traffic up to now.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from benchmarks.day.fleet import Fleet, Lease
from benchmarks.day.market import ForRent, Rented, left_over
from benchmarks.day.planning import Planner
from benchmarks.day.traffic import Day
from benchmarks.day.world import Machine


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be known at `at_s`. `rented`: what is held and serves; `day` is to be read up to `at_s` only."""

    at_s: float
    offers: tuple[ForRent, ...]
    rented: tuple[Machine, ...]
    day: Day


class Policy(Protocol):
    """Decides; may remember what it decided."""

    def decide(self, sight: Sight) -> Fleet | None:
        """The fleet to change to, or None to go on."""
        ...


@dataclass(slots=True)
class NeverReplan:
    """Keeps its first fleet; what is lost is replaced by the same kind, the cheapest, once there is one for rent."""

    fleet: Fleet
    _slots: list[Lease] = field(init=False)

    def __post_init__(self) -> None:
        self._slots = list(self.fleet.machines)

    def decide(self, sight: Sight) -> Fleet | None:
        left = Counter(machine.lease.kind for machine in sight.rented)
        missing = []
        for slot, lease in enumerate(self._slots):
            left[lease.kind] -= 1
            if left[lease.kind] < 0:
                missing.append(slot)
        found = _replacements([self._slots[slot] for slot in missing], sight.offers)
        if not any(found):
            return None
        still_missing: set[int] = set()
        for slot, new in zip(missing, found, strict=True):
            if new is None:
                still_missing.add(slot)
            else:
                self._slots[slot] = new
        return _without(replace(self.fleet, machines=tuple(self._slots)), still_missing)


@dataclass(slots=True)
class ReplanAlways:
    """The cheapest fleet for the traffic of the last window, at every poll; what is held is supply at its price."""

    planner: Planner
    window_s: float

    def decide(self, sight: Sight) -> Fleet | None:
        rates = sight.day.rates_rps(max(0.0, sight.at_s - self.window_s), sight.at_s)
        return self.planner.fleet(self.planner.problem(rates, sight.offers, sight.at_s, held=sight.rented))


def _replacements(leases: Iterable[Lease], offers: Sequence[ForRent]) -> list[Lease | None]:
    """Finds for each machine another of its kind; none of them shares a card with another."""
    taken: list[Rented] = []
    found: list[Lease | None] = []
    for lease in leases:
        fitting = [(lease_of(each, lease.gpus), each) for each in left_over(offers, taken) if is_like(each, lease)]
        new, offer = min(fitting, key=lambda pair: pair[0].price_usd_per_hour, default=(None, None))
        found.append(new)
        if offer is not None:
            taken.append(Rented(offer.machine, lease.gpus, offer.offer.gpu_ids))
    return found


def is_like(each: ForRent, lease: Lease) -> bool:
    """Whether an offer is of a machine as large, of the same GPUs, under whichever contract."""
    offer = each.offer
    fits = offer.gpus >= lease.gpus if offer.divisible else offer.gpus == lease.gpus
    return offer.gpu == lease.gpu and fits


def lease_of(each: ForRent, gpus: int) -> Lease:
    """So many GPUs of an offer."""
    offer = each.offer
    price = offer.price_usd_per_hour * gpus / offer.gpus
    return Lease(each.provider, offer.offer_id, offer.contract, offer.gpu, gpus, price)


def _without(fleet: Fleet, missing: set[int]) -> Fleet:
    kept = [slot for slot in range(len(fleet.machines)) if slot not in missing]
    at = {slot: index for index, slot in enumerate(kept)}
    return Fleet(
        tuple(fleet.machines[slot] for slot in kept),
        tuple(replace(engine, machine=at[engine.machine]) for engine in fleet.engines if engine.machine in at),
    )
