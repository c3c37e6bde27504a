"""A plain autoscaler, the rival that users have: machines like those of the first fleet, as many as keep them as busy
as they are to be, the cheapest offer first under whichever contract, whatever fits the traffic better.

Its rules are those of Kubernetes' horizontal autoscaler: utilisation over the last report against a target, left
alone within a tenth of it; up at once, down once five minutes have needed no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.day.fleet import Engine, Fleet, Lease
from benchmarks.day.market import ForRent, Rented, left_over
from benchmarks.day.policies import Sight, is_like, lease_of
from benchmarks.day.world import Speeds
from sutler.solver.arrays import FloatArray

REPORT_S: Final = 120.0
STABILISATION_S: Final = 300.0
TOLERANCE_FRACTION: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Unit:
    """A machine with its engines; `rps` [engines, buckets]: what each sustains of one bucket alone, and what it is
    estimated to before it runs, which is all that anybody knows who chooses one."""

    lease: Lease
    tensor_parallel: tuple[int, ...]
    rps: FloatArray
    estimated_rps: FloatArray

    def usd_per_request(self, rates_rps: FloatArray) -> float:
        """USD per hour of what is estimated to serve so much, to compare."""
        return self.lease.price_usd_per_hour * _load(self.estimated_rps, rates_rps)


@dataclass(slots=True)
class Autoscaler:
    """`headroom_fraction`: how much more than what arrives is to be there. It chooses machines by the same estimates
    as the planner, and sees how busy they truly are."""

    first: Fleet
    speeds: Speeds
    estimates: Speeds
    headroom_fraction: float
    _seen: list[tuple[float, FloatArray]] = field(default_factory=list)

    def decide(self, sight: Sight) -> Fleet | None:
        rates = sight.day.rates_rps(max(0.0, sight.at_s - REPORT_S), sight.at_s)
        self._seen = [one for one in self._seen if one[0] > sight.at_s - STABILISATION_S]
        self._seen.append((sight.at_s, rates))
        now = [self._unit(machine.lease, machine.rented) for machine in sight.rented]
        wanted = self._grown(now, sight.offers, rates)
        if len(wanted) == len(now):
            wanted = self._shrunk(now)
        return None if len(wanted) == len(now) else _fleet(wanted)

    @property
    def target(self) -> float:
        return 1.0 / (1.0 + self.headroom_fraction)

    def _grown(self, now: Sequence[_Unit], offers: Sequence[ForRent], rates: FloatArray) -> list[_Unit]:
        units = list(now)
        if _busy(units, rates) <= self.target * (1 + TOLERANCE_FRACTION):
            return units
        taken: list[Rented] = []
        while _busy(units, rates) > self.target:
            for_rent = list(self._for_rent(left_over(offers, taken)))
            if not for_rent:
                break
            unit, offer = min(for_rent, key=lambda pair: (pair[0].usd_per_request(rates), pair[0].lease.offer))
            units.append(unit)
            taken.append(Rented(offer.machine, unit.lease.gpus, offer.offer.gpu_ids))
        return units

    def _shrunk(self, now: Sequence[_Unit]) -> list[_Unit]:
        """Without the dearest machines, as far as what the last minutes needed is there."""
        units = list(now)
        if max(_busy(units, rates) for _, rates in self._seen) >= self.target * (1 - TOLERANCE_FRACTION):
            return units
        for unit in sorted(now, key=lambda unit: -unit.usd_per_request(self._seen[-1][1])):
            rest = [other for other in units if other is not unit]
            if rest and all(_busy(rest, rates) <= self.target for _, rates in self._seen):
                units = rest
        return units

    def _for_rent(self, offers: Sequence[ForRent]) -> Iterator[tuple[_Unit, ForRent]]:
        kinds = {(lease.gpu, lease.gpus): lease for lease in self.first.machines}
        for each in offers:
            for lease in kinds.values():
                if is_like(each, lease):
                    yield self._unit(lease_of(each, lease.gpus), each), each

    def _unit(self, lease: Lease, offer: ForRent) -> _Unit:
        like = next(
            number for number, one in enumerate(self.first.machines) if (one.gpu, one.gpus) == (lease.gpu, lease.gpus)
        )
        engines = tuple(engine.tensor_parallel for engine in self.first.engines if engine.machine == like)
        intra = offer.offer.intra_machine_gb_per_s
        rps, estimated_rps = (
            np.array([speeds(lease.gpu, size, intra) for size in engines]) for speeds in (self.speeds, self.estimates)
        )
        return _Unit(lease, engines, rps, estimated_rps)


def _busy(units: Sequence[_Unit], rates_rps: FloatArray) -> float:
    """The part of all engines' time that these rates take, as it is measured."""
    return _load(np.concatenate([unit.rps for unit in units]), rates_rps) if units else float("inf")


def _load(rps: FloatArray, rates_rps: FloatArray) -> float:
    """The part of these engines' time that the rates take, with a balancer that gives each as much as it can do."""
    together = rps.sum(axis=0)
    asked = rates_rps > 0
    if (together[asked] <= 0).any():
        return float("inf")
    return float((rates_rps[asked] / together[asked]).sum())


def _fleet(units: Sequence[_Unit]) -> Fleet:
    rps = np.concatenate([unit.rps for unit in units])
    total = rps.sum(axis=0)
    shares = np.divide(rps, total, out=np.zeros_like(rps), where=total > 0)
    owners = [(number, size) for number, unit in enumerate(units) for size in unit.tensor_parallel]
    engines = (Engine(number, size, tuple(own.tolist())) for (number, size), own in zip(owners, shares, strict=True))
    return Fleet(tuple(unit.lease for unit in units), tuple(engines))
