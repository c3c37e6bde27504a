"""Which machines could be rented together, and what they would cost.

Flow: offers -> machine_sets (here) -> renting.py.

A set has GPUs of one type, so that all replicas of a model are alike: so many of one offer, or the cheapest machines
per GPU of all offers. Of a divisible offer a machine's part has 1, 2, 4, 8, ... GPUs, or all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from sutler.solver.catalog.entries import Gpu
from sutler.solver.offline.hardware import Hardware, Island, Loading
from sutler.solver.offline.stages import Execution
from sutler.solver.problem import Offer
from sutler.solver.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

MOST_GPUS: Final = 16  # of a set, unless the goal says otherwise: searches take longer with more
_Key = tuple[str, str, str, bool, int]


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """`minimum_s`: billed at least; all bills are rounded up to whole `billing_increment_s`; `start_up_s`: from the
    order until models can be loaded, billed."""

    minimum_s: float = 0.0
    billing_increment_s: float = 1.0
    start_up_s: float = 120.0

    def billed_s(self, used_s: float) -> float:
        """The seconds that are billed for a machine that is used until then, counted from when it is up."""
        due_s = max(self.minimum_s, self.start_up_s + used_s)
        return ceil(round(due_s / self.billing_increment_s, 9)) * self.billing_increment_s


@dataclass(frozen=True, slots=True)
class Unit:
    """One machine: `gpus` of an offer's at `price_usd_per_hour`, `storage_usd_per_hour` of it for `storage_gb` of
    weights (0 where the offer neither prices nor limits its disk)."""

    offer: Offer
    gpus: int
    price_usd_per_hour: float
    storage_gb: float = 0.0
    storage_usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class RentedMachines:
    """`count` machines of one kind; `hosts`: their numbers in the hardware; `billed_s` is for each, `usd` for all."""

    unit: Unit
    count: int
    hosts: tuple[int, ...]
    billed_s: float
    usd: float


def unit_sets(
    offers: Sequence[Offer], *, disk_gb: float, max_gpus: int | None, max_machines: int | None
) -> Iterator[tuple[Unit, ...]]:
    """All sets, without repetition, those of few machines first for each GPU type."""
    most_gpus = max_gpus or MOST_GPUS
    most_machines = max_machines or most_gpus
    for gpu in dict.fromkeys(offer.gpu for offer in offers):
        seen: set[tuple[_Key, ...]] = set()
        units = [unit for offer in offers if offer.gpu == gpu for unit in _units(offer, disk_gb)]
        units.sort(key=lambda unit: (unit.price_usd_per_hour / unit.gpus, -unit.gpus, _key(unit)))
        for found in (*_of_one_offer(units, most_machines), *_cheapest(units)):
            names = tuple(sorted(map(_key, found)))
            if names not in seen and len(found) <= most_machines and sum(unit.gpus for unit in found) <= most_gpus:
                seen.add(names)
                yield found


def hardware_of(units: Sequence[Unit], gpu: Gpu, loading: Loading) -> Hardware:
    """Every machine one island; no replica spans machines. Weights come over the slowest line of all machines, unless
    `loading` says how fast."""
    islands = tuple(
        Island(host, tuple(range(unit.gpus)), unit.offer.intra_machine_gb_per_s or gpu.link_gb_per_s or 0.0)
        for host, unit in enumerate(units)
    )
    lines = [unit.offer.inet_down_gb_per_s for unit in units if unit.offer.inet_down_gb_per_s]
    if loading.download_gb_per_s is None and lines:
        loading = replace(loading, download_gb_per_s=min(lines))
    return Hardware(gpu, islands, 0.0, loading)


def billed(units: Sequence[Unit], execution: Execution, terms: BillingTerms) -> tuple[RentedMachines, ...]:
    """Returns the machines of each kind with their bill: each is paid for until the last stage that uses it."""
    groups: dict[tuple[_Key, float], list[int]] = {}
    for host, unit in enumerate(units):
        groups.setdefault((_key(unit), terms.billed_s(last_use_s(execution, host))), []).append(host)
    found = []
    for (_, billed_s), hosts in groups.items():
        unit = units[hosts[0]]
        usd = len(hosts) * unit.price_usd_per_hour * billed_s / SECONDS_PER_HOUR
        found.append(RentedMachines(unit, len(hosts), tuple(hosts), billed_s, usd))
    return tuple(found)


def last_use_s(execution: Execution, host: int) -> float:
    """When the last stage ends that has a replica there; 0 where none has."""
    return max(
        (
            stage.end_s
            for stage in execution.stages
            if any(number == host for replica in stage.replicas for number, _ in replica.gpus)
        ),
        default=0.0,
    )


def _units(offer: Offer, disk_gb: float) -> list[Unit]:
    if offer.disk_gb is not None and offer.disk_gb < disk_gb:
        return []
    storage_gb = disk_gb if offer.disk_gb is not None or offer.disk_usd_per_gb_month else 0.0
    storage = max(0.0, storage_gb - offer.disk_included_gb) * offer.disk_usd_per_gb_month / HOURS_PER_MONTH
    sizes = {offer.gpus}
    if offer.divisible:
        sizes |= {1 << power for power in range(offer.gpus.bit_length()) if 1 << power <= offer.gpus}
    return [
        Unit(offer, gpus, offer.price_usd_per_hour * gpus / offer.gpus + storage, storage_gb, storage)
        for gpus in sorted(sizes)
    ]


def _of_one_offer(units: Sequence[Unit], most_machines: int) -> Iterator[tuple[Unit, ...]]:
    for unit in units:
        found: list[Unit] = []
        while len(found) < min(unit.offer.available, most_machines) and _goes_with(unit, found):
            found.append(unit)
            yield tuple(found)


def _cheapest(units: Sequence[Unit]) -> Iterator[tuple[Unit, ...]]:
    """The cheapest machine per GPU, the two cheapest, ...: whole machines that can be rented beside one another."""
    found: list[Unit] = []
    for unit in units:
        if unit.gpus < unit.offer.gpus:
            continue
        for _ in range(unit.offer.available):
            if not _goes_with(unit, found):
                break
            found.append(unit)
            yield tuple(found)


def _goes_with(unit: Unit, found: Sequence[Unit]) -> bool:
    """Whether it can be rented beside those: one id is for rent under one contract, and slices of one machine have
    GPUs of their own, together no more than it has."""
    offer = unit.offer
    others = [other.offer for other in found if not (offer.held or other.offer.held)]
    if any(_name(other) == _name(offer) and other.contract != offer.contract for other in others):
        return False
    if offer.machine_id is None:
        return True
    machine = (offer.provider, offer.machine_id)
    here = [other for other in found if (other.offer.provider, other.offer.machine_id) == machine]
    if any(set(offer.gpu_ids or ()) & set(other.offer.gpu_ids or ()) for other in here):
        return False
    return sum(other.gpus for other in here) + unit.gpus <= (offer.machine_gpus or offer.gpus)


def _name(offer: Offer) -> tuple[str, str]:
    return offer.provider, offer.offer_id


def _key(unit: Unit) -> _Key:
    return *_name(unit.offer), unit.offer.contract, unit.offer.held, unit.gpus


def cheapest_usd_per_gpu_s(units: Sequence[Unit]) -> float:
    """The least price of a GPU-second among the machines in a set."""
    return min(unit.price_usd_per_hour / unit.gpus for unit in units) / SECONDS_PER_HOUR


def price_usd_per_hour(units: Sequence[Unit]) -> float:
    return sum(unit.price_usd_per_hour for unit in units)
