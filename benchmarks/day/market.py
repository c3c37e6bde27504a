"""What the fake clouds say at an instant of the simulated day, without the machines that are lost (losses.py).

The two marketplaces that name their machines are asked: Vast.ai (overlapping slices of hosts) and Lium (nodes). They
are asked without a server in between; what they answer is read by the adapters that poll the real ones.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.day.losses import MachineKey, is_away, lost_at
from sutler.adapters import lium, vastai
from sutler.adapters.base import USUAL_PRICE_BAND, Contract, Offer
from sutler.adapters.fake.clouds.cloud import MarketInstant
from sutler.adapters.fake.clouds.lium import CLOUD as LIUM
from sutler.adapters.fake.clouds.lium import NODES_PATH
from sutler.adapters.fake.clouds.vastai import CLOUD as VASTAI
from sutler.adapters.fake.clouds.vastai import SEARCH_PATH
from sutler.adapters.fake.market import MachineState, Market
from sutler.adapters.fake.wire import Request
from sutler.adapters.vastai_searches import ALLOCATED_STORAGE_GB, SEARCH_TYPES, SearchAnswer, SearchedContract

MACHINES: Final = 200
CONTRACTS: Final[tuple[SearchedContract, ...]] = ("on_demand", "interruptible")
_SEARCH: Final = {
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "verified": {"eq": True},
    "limit": 3000,
    "allocated_storage": ALLOCATED_STORAGE_GB,
}

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
    """The market of one seed from `starts_s` (epoch seconds) on; a pure function of the time.

    `gpus`: the types that count; no others are asked for.
    """

    def __init__(self, seed: int, *, starts_s: float, gpus: frozenset[str], machines: int = MACHINES) -> None:
        self.seed, self.starts_s, self._gpus = seed, starts_s, gpus
        self._market = _OfTypes(seed=seed, machines=machines, gpus=gpus)
        self._asked: dict[float, tuple[ForRent, ...]] = {}

    def offers(self, at_s: float) -> tuple[ForRent, ...]:
        """What is for rent `at_s` seconds into the day."""
        if at_s not in self._asked:
            self._asked[at_s] = self._told(at_s)
        return self._asked[at_s]

    def _told(self, at_s: float) -> tuple[ForRent, ...]:
        now_s = self.starts_s + at_s
        view = MarketInstant(self._market, now_s, now_s)
        found = (*_vastai(view), *_lium(view))
        wanted = (each for each in found if each.offer.gpu in self._gpus and each.offer.contract in CONTRACTS)
        return tuple(each for each in wanted if not self._is_away(each, at_s))

    def lost_at(self, rented: ForRent, since_s: float) -> float:
        """The seconds into the day at which what is rented since then is lost; infinite if it never is."""
        return lost_at(self.seed, rented.machine, rented.offer.contract, since_s)

    def _is_away(self, each: ForRent, at_s: float) -> bool:
        return is_away(self.seed, each.machine, each.offer.contract, at_s)


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
    searches = tuple(SearchAnswer(contract, _searched(view, contract), is_cut=False) for contract in CONTRACTS)
    for offer in vastai.parse(searches, price_band=USUAL_PRICE_BAND, now_s=view.at_s).offers:
        yield ForRent("vastai", offer)


def _searched(view: MarketInstant, contract: SearchedContract) -> tuple[Any, ...]:
    body = json.dumps({**_SEARCH, "type": SEARCH_TYPES[contract]}).encode()
    answer = VASTAI.routes["POST", SEARCH_PATH](Request("POST", SEARCH_PATH, {}, {}, body), view)
    return tuple(json.loads(answer.body)["offers"])


def _lium(view: MarketInstant) -> Iterator[ForRent]:
    answer = LIUM.routes["GET", NODES_PATH](Request("GET", NODES_PATH, {}, {}), view)
    for offer in lium.parse(json.loads(answer.body), price_band=USUAL_PRICE_BAND).offers:
        yield ForRent("lium", offer)
