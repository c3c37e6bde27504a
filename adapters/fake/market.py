"""The living market: machines, what of them is free and what they cost, as a pure function of seed and time.

Nothing evolves: every process is computed from (seed, machine, step), so that any instant can be asked in any order.
The MILP paper ("Demystifying Cost-Efficiency in LLM Serving over Heterogeneous GPUs", ICML 2025) shows in figure 2
how the GPUs for rent at Vast.ai swing within 24 hours, and says in section 3 that A40s range from 0 to 32 there. The
size of the swing follows that; its phase (data-centre GPUs scarce by day and plentiful by night, UTC) and the smaller
swings of other kinds are our assumption.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sutler.adapters.fake.chance import between, level, normal, share_below, spread, step_at, uniform
from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.gpus import GPUS, SOLD_BY, GpuModel, Kind
from sutler.adapters.fake.places import PLACES, Place

LEAST_MACHINES: Final = 50  # chosen: the smallest cloud, with 4 % of them, still has one or two
MOST_MACHINES: Final = 20_000  # chosen: bounds the time of an answer, which grows with them
LEAST_CHURN: Final = 0.01  # chosen: a card changes hands once in weeks
MOST_CHURN: Final = 100.0  # chosen: a card changes hands every minute or so
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S

_SHARES: Final[Mapping[str, float]] = {
    "vastai": 0.6,
    "runpod": 0.14,
    "lium": 0.07,
    "hyperstack": 0.06,
    "verda": 0.05,
    "shadeform": 0.04,
    "lambda": 0.04,
}
# Clouds that were added later, as shares of machines beside the others, whose machines stay what they were.
_LATER_SHARES: Final[Mapping[str, float]] = {"vultr": 0.04}
_SIZES: Final[Mapping[Kind, tuple[int, ...]]] = {
    "data_centre": (8, 8, 8, 4, 8, 4, 2, 1),
    "workstation": (4, 8, 2, 4, 1),
    "consumer": (1, 8, 4, 2, 4, 1, 8, 2),
}
# Mean share of cards that are rented, its swing over the day, and the UTC hour at which most are.
_DEMAND: Final[Mapping[Kind, tuple[float, float, float]]] = {
    "data_centre": (0.66, 0.22, 15.0),
    "workstation": (0.58, 0.14, 15.0),
    "consumer": (0.5, 0.1, 20.0),
}
_LIST_FACTORS: Final[Mapping[str, float]] = {
    "runpod/secure": 1.2,
    "runpod/community": 0.9,
    "lium/standard": 0.95,
    "lium/spot": 0.6,
    "lambda/": 1.3,
    "verda/": 1.1,
    "hyperstack/": 1.05,
    "vultr/": 1.35,
    "shadeform/massedcompute": 1.15,
    "shadeform/crusoe": 1.25,
}
# Cards of one machine are rented together as often as not: (cards per draw, shortest hours, longest hours, weight).
_BLOCKS: Final = ((8, 5.0, 12.0, 0.6), (4, 2.0, 6.0, 0.5), (2, 1.0, 4.0, 0.43), (1, 0.5, 3.0, 0.4539))

_NUMBERS: Final = {slug: number for number, slug in enumerate(GPUS)}
_MACHINE, _HOST, _PRICE, _DEMANDED, _CARDS, _BID, _UPTIME, _LISTING, _LIST, _TYPE = range(10)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMachine:
    """What never changes about a machine; `host` may have several, of one place."""

    number: int
    provider: str
    gpu: GpuModel
    gpus: int
    host: int
    place: Place
    is_verified: bool
    reliability_fraction: float
    smallest_slice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """A machine at one instant: cards not rented, prices per GPU and hour, and the listing it is under."""

    machine: FakeMachine
    free: tuple[int, ...]
    usd_per_gpu_hour: float
    bid_usd_per_gpu_hour: float
    listing: int
    listed_until_s: float


@dataclass(frozen=True, slots=True)
class Count:
    """Machines on line of one GPU type at one cloud, and their cards."""

    machines: int
    gpus: int
    free_gpus: int
    least_usd_per_gpu_hour: float | None


class Market:
    """Several hundred machines over all clouds; those of `_LATER_SHARES` have theirs beside them.

    Raises FakeSetupError for a number that makes no market.

    `churn`: how many times as fast machines, cards, listings and prices come and go; the days stay as long.
    """

    def __init__(self, *, seed: int = 1, machines: int = 300, churn: float = 1.0) -> None:
        if not LEAST_MACHINES <= machines <= MOST_MACHINES:
            raise FakeSetupError(f"machines: {machines} must be from {LEAST_MACHINES} to {MOST_MACHINES}")
        if not LEAST_CHURN <= churn <= MOST_CHURN:
            raise FakeSetupError(f"churn: {churn:g} must be from {LEAST_CHURN:g} to {MOST_CHURN:g}")
        self.seed, self.churn = seed, churn
        self.machines = tuple(_machines(seed, machines))
        self._of = {name: tuple(m for m in self.machines if m.provider == name) for name in _SHARES}
        self._of |= {name: tuple(_later_machines(seed, machines, name)) for name in _LATER_SHARES}

    def of(self, provider: str) -> tuple[FakeMachine, ...]:
        """The machines of one cloud."""
        return self._of[provider]

    def states(self, provider: str, t_s: float) -> tuple[MachineState, ...]:
        """The machines of one cloud that are on line at `t_s` (epoch seconds)."""
        states = (self.state(machine, t_s) for machine in self._of[provider])
        return tuple(state for state in states if state is not None)

    def state(self, machine: FakeMachine, t_s: float) -> MachineState | None:
        """Returns the machine as it is at `t_s`, None while it is switched off or not listed."""
        key, own_s = (self.seed, machine.number), t_s * self.churn
        if uniform(*key, _UPTIME, step_at(own_s, 10 * HOUR_S, *key, _UPTIME)) < 0.03:
            return None
        listing_s = between(20.0, 60.0, *key, _LISTING) * DAY_S
        listing = step_at(own_s, listing_s, *key, _LISTING)
        if uniform(*key, _LISTING, listing) < 0.06:
            return None
        price, bid = self._prices(machine, t_s)
        return MachineState(
            machine=machine,
            free=self._free(machine, t_s),
            usd_per_gpu_hour=price,
            bid_usd_per_gpu_hour=bid,
            listing=listing,
            listed_until_s=(listing + 1 - uniform(*key, _LISTING, -1)) * listing_s / self.churn,
        )

    def demand(self, gpu: GpuModel, t_s: float) -> float:
        """The share of cards of this type that are rented, from 0.03 to 0.98: a daily wave, and the type's drift."""
        mean, swing, peak_hour = _DEMAND[gpu.kind]
        wave = math.cos(2 * math.pi * (t_s % DAY_S / HOUR_S - peak_hour) / 24.0)
        drift = 0.05 * level(t_s * self.churn, 3 * HOUR_S, self.seed, _DEMANDED, _NUMBERS[gpu.slug])
        return min(max(mean + swing * wave + drift, 0.03), 0.98)

    def list_price(self, provider: str, tier: str, gpu: GpuModel, t_s: float) -> float:
        """What a cloud with a price list asks per GPU and hour, in whole cents; it changes about once a week."""
        drift = 0.04 * level(t_s * self.churn, 7 * DAY_S, self.seed, _LIST, _NUMBERS[gpu.slug], len(provider + tier))
        return round(gpu.usd_per_gpu_hour * _LIST_FACTORS[f"{provider}/{tier}"] * math.exp(drift), 2)

    def counts(self, t_s: float) -> dict[str, dict[str, Count]]:
        """Counts by cloud and GPU slug what is truly there, whatever the clouds tell of it."""
        return {provider: dict(self._counts(provider, t_s)) for provider in self._of}

    def _counts(self, provider: str, t_s: float) -> Iterator[tuple[str, Count]]:
        states = self.states(provider, t_s)
        for slug in SOLD_BY[provider]:
            own = [state for state in states if state.machine.gpu.slug == slug]
            prices = [state.usd_per_gpu_hour for state in own if state.free]
            cards = sum(state.machine.gpus for state in own)
            yield slug, Count(len(own), cards, sum(len(state.free) for state in own), min(prices, default=None))

    def _free(self, machine: FakeMachine, t_s: float) -> tuple[int, ...]:
        demand = self.demand(machine.gpu, t_s)
        values = [0.0] * machine.gpus
        for block, (cards, shortest_h, longest_h, weight) in enumerate(_BLOCKS):
            for first in range(0, machine.gpus, cards):
                key = (self.seed, machine.number, _CARDS, block, first)
                drawn = weight * level(t_s * self.churn, between(shortest_h, longest_h, *key, -2) * HOUR_S, *key)
                for card in range(first, min(first + cards, machine.gpus)):
                    values[card] += drawn
        return tuple(card for card, value in enumerate(values) if share_below(value) >= demand)

    def _prices(self, machine: FakeMachine, t_s: float) -> tuple[float, float]:
        """Returns the price on demand and the least bid. Hosts revise theirs every few hours, by the demand."""
        key, own_s = (self.seed, machine.number, _PRICE), t_s * self.churn
        period_s = between(3.0, 12.0, *key, -2) * HOUR_S
        revised_s = (step_at(own_s, period_s, *key) - uniform(*key, -1)) * period_s
        if machine.provider == "vastai":
            noise = 0.06 * level(own_s, period_s, *key) + 0.04 * level(
                revised_s, DAY_S / 4, self.seed, _TYPE, _NUMBERS[machine.gpu.slug]
            )
            host = 0.14 * normal(self.seed, _HOST, machine.host)
            scarcity = 0.25 * (self.demand(machine.gpu, revised_s / self.churn) - 0.6)
            price = round(machine.gpu.usd_per_gpu_hour * math.exp(noise + host + scarcity), 4)
        else:
            price = self.list_price(machine.provider, machine.place.tier, machine.gpu, t_s)
        least = between(0.4, 0.6, *key, _BID) * math.exp(0.1 * level(own_s, 2 * HOUR_S, *key, _BID))
        return price, round(price * min(least, 0.9), 4)


def _machines(seed: int, machines: int) -> Iterator[FakeMachine]:
    so_far: Counter[str] = Counter()
    for number in range(machines):
        provider = _by_weight(spread(number, 0), tuple(_SHARES), tuple(_SHARES.values()))
        yield _machine(seed, number, provider, so_far[provider])
        so_far[provider] += 1


def _later_machines(seed: int, machines: int, provider: str) -> Iterator[FakeMachine]:
    """Machines of one cloud, numbered on after all others."""
    first = machines + 1000 * tuple(_LATER_SHARES).index(provider)
    for rank in range(max(round(machines * _LATER_SHARES[provider]), 2)):
        yield _machine(seed, first + rank, provider, rank)


def _machine(seed: int, number: int, provider: str, rank: int) -> FakeMachine:
    slugs = SOLD_BY[provider]
    weights = tuple(GPUS[slug].weight for slug in slugs)
    gpu = GPUS[_by_weight(spread(rank, seed, _MACHINE, len(provider)), slugs, weights)]
    is_marketplace = provider in {"vastai", "lium"}
    sizes = _SIZES[gpu.kind] if is_marketplace else (8,)
    gpus = sizes[int(uniform(seed, number, _MACHINE, 2) * len(sizes))]
    host = rank // 3 if is_marketplace else 0
    place_key = host if is_marketplace else rank
    return FakeMachine(
        number=number,
        provider=provider,
        gpu=gpu,
        gpus=gpus,
        host=host,
        place=PLACES[provider][int(spread(place_key, seed, _HOST) * len(PLACES[provider]))],
        is_verified=uniform(seed, number, _MACHINE, 3) < 0.88,
        reliability_fraction=round(1.0 - 0.06 * uniform(seed, number, _MACHINE, 4) ** 2, 4),
        smallest_slice=gpus if uniform(seed, number, _MACHINE, 5) < 0.12 else 1,
    )


def _by_weight(point: float, names: tuple[str, ...], weights: tuple[float, ...]) -> str:
    """The name whose share of the weights covers `point`, from [0, 1)."""
    left = point * sum(weights)
    for name, weight in zip(names, weights, strict=True):
        left -= weight
        if left < 0:
            return name
    return names[-1]
