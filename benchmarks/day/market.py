"""What the fake clouds say at an instant of the simulated day, and which machines fail when.

The two marketplaces that name their machines are asked: Vast.ai (overlapping slices of hosts) and Lium (nodes). They
are asked without a server in between; what they answer is read by the adapters that poll the real ones.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from sutler.adapters import lium, vastai
from sutler.adapters.base import USUAL_PRICE_BAND, Contract, Offer
from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.clouds.lium import CLOUD as LIUM
from sutler.adapters.fake.clouds.lium import NODES_PATH
from sutler.adapters.fake.clouds.vastai import CLOUD as VASTAI
from sutler.adapters.fake.clouds.vastai import SEARCH_PATH
from sutler.adapters.fake.market import MachineState, Market
from sutler.adapters.fake.wire import Request
from sutler.adapters.vastai_searches import ALLOCATED_STORAGE_GB, SearchAnswer

DAY_S: Final = 86_400.0
MACHINES: Final = 320
# A share of the machines fails once within the day, at a moment of its own, and is gone for an hour.
FAILING_FRACTION: Final = 0.15
DOWN_S: Final = 3600.0
_SEARCH: Final = {
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "verified": {"eq": True},
    "type": "on-demand",
    "limit": 3000,
    "allocated_storage": ALLOCATED_STORAGE_GB,
}

MachineKey = tuple[str, str]
OfferKey = tuple[str, str, Contract]


@dataclass(frozen=True, slots=True)
class ForRent:
    """An offer with its provider; both name a machine."""

    provider: str
    offer: Offer

    @property
    def key(self) -> OfferKey:
        return self.provider, self.offer.offer_id, self.offer.contract

    @property
    def machine(self) -> MachineKey:
        return self.provider, self.offer.machine_id or self.offer.offer_id


@dataclass(frozen=True, slots=True)
class Rented:
    """What of a machine is rented by us: its cards where the offer named them, else their number."""

    machine: MachineKey
    gpus: int
    gpu_ids: tuple[int, ...] | None


class DayMarket:
    """The market of one seed from `starts_s` (epoch seconds, midnight UTC) on; a pure function of the time of day.

    `gpus`: the types that count; no others are asked for.
    """

    def __init__(self, seed: int, *, starts_s: float, gpus: frozenset[str], machines: int = MACHINES) -> None:
        self.seed, self.starts_s, self._gpus = seed, starts_s, gpus
        self._market = _OfTypes(seed=seed, machines=machines, gpus=gpus)
        self._asked: dict[float, tuple[ForRent, ...]] = {}

    def offers(self, at_s: float) -> tuple[ForRent, ...]:
        """What is for rent on demand `at_s` seconds into the day, without machines that are down."""
        if at_s not in self._asked:
            self._asked[at_s] = self._told(at_s)
        return self._asked[at_s]

    def _told(self, at_s: float) -> tuple[ForRent, ...]:
        now_s = self.starts_s + at_s
        view = MarketInstant(self._market, now_s, now_s)
        found = (*_vastai(view), *_lium(view))
        wanted = (each for each in found if each.offer.gpu in self._gpus and each.offer.contract == "on_demand")
        return tuple(each for each in wanted if not self.is_down(each.machine, at_s))

    def fails_at(self, machine: MachineKey) -> float | None:
        """The seconds into the day at which this machine is lost, if it is."""
        return fails_at(self.seed, machine)

    def is_down(self, machine: MachineKey, at_s: float) -> bool:
        failed_s = self.fails_at(machine)
        return failed_s is not None and failed_s <= at_s < failed_s + DOWN_S


@lru_cache(maxsize=100_000)
def fails_at(seed: int, machine: MachineKey) -> float | None:
    """Drawn from seed and name alone, so that every policy meets the same failures."""
    digest = hashlib.blake2b(f"{seed}/{machine[0]}/{machine[1]}".encode(), digest_size=16).digest()
    drawn, moment = (int.from_bytes(half) / 2**64 for half in (digest[:8], digest[8:]))
    return moment * DAY_S if drawn < FAILING_FRACTION else None


def left_over(offers: Iterable[ForRent], rented: Sequence[Rented]) -> tuple[ForRent, ...]:
    """The offers that are still there when `rented` is ours: the fake market does not know what we rent.

    Slices with one of our cards are gone; a node that counts its GPUs has fewer.
    """
    cards: dict[MachineKey, set[int]] = defaultdict(set)
    counts: dict[MachineKey, int] = defaultdict(int)
    for each in rented:
        cards[each.machine].update(each.gpu_ids or ())
        counts[each.machine] += 0 if each.gpu_ids else each.gpus
    return _stated(_left(offers, cards, counts))


def _left(
    offers: Iterable[ForRent], cards: Mapping[MachineKey, set[int]], counts: Mapping[MachineKey, int]
) -> Iterator[ForRent]:
    for each in offers:
        offer, taken = each.offer, counts.get(each.machine, 0)
        if offer.gpu_ids is not None and cards.get(each.machine, set()) & set(offer.gpu_ids):
            continue
        if not taken:
            yield each
        elif offer.divisible and offer.gpus > taken:
            gpus = offer.gpus - taken
            price = offer.price_usd_per_hour * gpus / offer.gpus
            yield replace(each, offer=replace(offer, gpus=gpus, machine_gpus=gpus, price_usd_per_hour=price))


def _stated(offers: Iterable[ForRent]) -> tuple[ForRent, ...]:
    """Each offer with the GPUs of its machine that can be rented now: the distinct cards of all its slices."""
    kept = tuple(offers)
    cards: dict[MachineKey, set[int]] = defaultdict(set)
    for each in kept:
        cards[each.machine].update(each.offer.gpu_ids or ())
    return tuple(
        replace(each, offer=replace(each.offer, machine_gpus=len(cards[each.machine])))
        if each.offer.gpu_ids
        else each
        for each in kept
    )


class _OfTypes(Market):
    """The market as if it had machines of these types only: the others cost time and are never asked for."""

    def __init__(self, *, seed: int, machines: int, gpus: frozenset[str]) -> None:
        super().__init__(seed=seed, machines=machines)
        self._gpus = gpus

    def states(self, provider: str, t_s: float) -> tuple[MachineState, ...]:
        wanted = (machine for machine in self.of(provider) if machine.gpu.slug in self._gpus)
        return tuple(state for machine in wanted if (state := self.state(machine, t_s)) is not None)


def _vastai(view: MarketInstant) -> Iterator[ForRent]:
    request = Request("POST", SEARCH_PATH, {}, {}, json.dumps(_SEARCH).encode())
    answer = json.loads(VASTAI.routes["POST", SEARCH_PATH](request, view).body)
    search = SearchAnswer("on_demand", tuple(answer["offers"]), is_cut=False)
    for offer in vastai.parse((search,), price_band=USUAL_PRICE_BAND, now_s=view.at_s).offers:
        yield ForRent("vastai", offer)


def _lium(view: MarketInstant) -> Iterator[ForRent]:
    answer = LIUM.routes["GET", NODES_PATH](Request("GET", NODES_PATH, {}, {}), view)
    for offer in lium.parse(json.loads(answer.body), price_band=USUAL_PRICE_BAND).offers:
        yield ForRent("lium", offer)
