"""Mass preemptions: `python -m benchmarks.preemption`.

One model at 200 requests/s; every machine serves 20. Spot machines are for rent in four places of two providers, the
cheapest at a third of what machines on demand cost. Three times, an hour and a half apart, a wave takes all spot
machines of the provider that most are of, and for half an hour whatever is rented there again, after five minutes on
average; the market goes on to list it all. Beside that each spot machine is taken away once in a day. Machines serve
once they have started and fetched the weights, and are paid from the order on. Six hours.

Kept by: sutler as it is; sutler as it was, which goes straight back to where it lost machines; sutler that counts
interruptions at the rates that the fleet itself has seen; sutler that is to carry a share of the load after the loss
of any provider, or of all spot machines at once; SkyServe's SpotHedge (arXiv 2411.01438, section 4): spot machines
for the load and two more, spread over places, without those where machines were lost as long as two others are left,
and machines on demand for spot machines that do not serve yet; and machines on demand alone. All keep a tenth of
headroom.
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

import numpy as np

from benchmarks.lead_time import LEAD_S, RPS_PER_MACHINE
from benchmarks.program import parser_of
from sutler.service.documents.market import OfferDocument
from sutler.solver.outlook.interruptions import Rented, learnt
from tests.service.deployments.replanning.builders import START, a_problem, an_offer, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines

LOAD_RPS: Final = 200.0
HEADROOM: Final = 0.1
STEP_S: Final = 15.0
LENGTH_S: Final = 6 * 3600.0
WAVES_S: Final = (3600.0, 9000.0, 14400.0)
WAVE_S: Final = 1800.0
LIFE_IN_WAVE_S: Final = 300.0
LIFE_S: Final = 24 * 3600.0
ON_DEMAND_USD: Final = 2.4


def _spot(name: str, provider: str, price: float) -> OfferDocument:
    return an_offer(
        name, provider=provider, contract="interruptible", region=name, available=20, price_usd_per_hour=price
    )


SPOT: Final = (
    _spot("oslo", "acme", 0.8),
    _spot("bergen", "acme", 0.85),
    _spot("paris", "bolt", 0.95),
    _spot("lyon", "bolt", 1.0),
)
ON_DEMAND: Final = an_offer("sure", provider="bolt", available=40, region="paris", price_usd_per_hour=ON_DEMAND_USD)
OFFERS: Final = {offer.offer_id: offer for offer in (*SPOT, ON_DEMAND)}


@dataclass(slots=True)
class Machine:
    """A rented machine."""

    offer: str
    since_s: float

    def serves(self, at_s: float) -> bool:
        return at_s >= self.since_s + LEAD_S


class Keeper(Protocol):
    """Says which machines there are to be, by offer, from what is rented, and what was lost since it was asked."""

    def wanted(self, at_s: float, fleet: Sequence[Machine], lost: Mapping[str, int]) -> Mapping[str, int]: ...


@dataclass(slots=True)
class Sutler:
    """A deployment whose plans are carried out at once; `counts`: interruptions, as the fleet has seen them."""

    policy: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Any] = field(default_factory=dict)
    counts: bool = False
    world: World = field(init=False)
    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    losses: Counter[str] = field(default_factory=Counter)
    incidents: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem = a_problem(
            LOAD_RPS,
            1e-4,
            objective={"kind": "min_cost", "headroom_fraction": HEADROOM, "count_interruptions": self.counts},
            market={"filter": {"contracts": ["on_demand", "interruptible"]}},
            **self.others,
        )
        policy = {"avoid_lost_s": 900.0, "startup_s": 90.0, "download_gb_per_s": 0.25, **self.policy}
        self.world = a_world(*OFFERS.values(), problem=problem, policy=policy, settled_in=False)
        self.world.traffic = traffic(LOAD_RPS, 1e-4, policy=self.world.policy)

    def wanted(self, at_s: float, fleet: Sequence[Machine], lost: Mapping[str, int]) -> Mapping[str, int]:
        world = self.world
        world.now = START + timedelta(seconds=at_s)
        self._note(fleet, lost)
        if lost:
            left = Counter(machine.offer for machine in fleet)
            assert world.holdings is not None
            held = (one.model_copy(update={"count": left[one.offer_id]}) for one in world.holdings)
            world.reports([one for one in held if one.count])
        world.poll()
        world.look()
        return {name.partition("/")[2]: count for name, count in machines(world).items()}

    def _note(self, fleet: Sequence[Machine], lost: Mapping[str, int]) -> None:
        for machine in fleet:
            self.hours[machine.offer] += STEP_S / 3600.0
        self.losses.update(lost)
        if lost:
            self.incidents.append(sum(lost.values()))
        if self.counts and (lost or not self.world.interruptions):
            kinds: dict[tuple[str, str], float] = defaultdict(float)
            for name, hours in self.hours.items():
                kinds[OFFERS[name].provider, OFFERS[name].contract] += hours
            rented = [
                Rented(provider, contract, "h100-sxm", hours, self._lost_of(provider, contract), LOAD_RPS / 20)
                for (provider, contract), hours in kinds.items()
            ]
            self.world.interruptions = learnt(rented, {"interruptible": self.incidents})

    def _lost_of(self, provider: str, contract: str) -> int:
        own = (name for name, offer in OFFERS.items() if (offer.provider, offer.contract) == (provider, contract))
        return sum(self.losses[name] for name in own)


TARGET: Final = math.ceil(LOAD_RPS * (1 + HEADROOM) / RPS_PER_MACHINE - 1e-9)


@dataclass(slots=True)
class SpotHedge:
    """As the paper's algorithm has it, with `extra` spot machines."""

    extra: int = 2
    preempting: set[str] = field(default_factory=set)

    def wanted(self, at_s: float, fleet: Sequence[Machine], lost: Mapping[str, int]) -> Mapping[str, int]:
        own = Counter(machine.offer for machine in fleet if machine.offer != ON_DEMAND.offer_id)
        ready = [machine for machine in fleet if machine.serves(at_s) and machine.offer != ON_DEMAND.offer_id]
        self.preempting |= {name for name in lost if name != ON_DEMAND.offer_id}
        self.preempting -= {machine.offer for machine in ready if machine.offer not in lost}
        places = [offer.offer_id for offer in SPOT]
        if len(set(places) - self.preempting) < 2:
            self.preempting.clear()
        active = [name for name in places if name not in self.preempting]
        target = TARGET + self.extra
        while own.total() < target:
            fewest = min(active, key=lambda name: (own[name], OFFERS[name].price_usd_per_hour))
            own[fewest] += 1
        sure = min(TARGET, max(0, target - len(ready)))
        return {**own, **({ON_DEMAND.offer_id: sure} if sure else {})}


class OnDemand:
    """Nothing that is taken away."""

    def wanted(self, at_s: float, fleet: Sequence[Machine], lost: Mapping[str, int]) -> Mapping[str, int]:
        return {ON_DEMAND.offer_id: TARGET}


def _surviving(kind: str, load_fraction: float) -> dict[str, Any]:
    return {"resilience": {"survive": [kind], "load_fraction": load_fraction}}


KEEPERS: Final[dict[str, Callable[[], Keeper]]] = {
    "sutler": Sutler,
    "sutler as it was": lambda: Sutler({"avoid_lost_s": 0.0}),
    "counts interruptions": lambda: Sutler(counts=True),
    "survives a provider, 60 %": lambda: Sutler(others=_surviving("provider", 0.6)),
    "survives a provider, 80 %": lambda: Sutler(others=_surviving("provider", 0.8)),
    "survives all spot, 60 %": lambda: Sutler(others=_surviving("interruptible", 0.6)),
    "SpotHedge": SpotHedge,
    "on demand": OnDemand,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of all requests those that are not served; seconds in which not all are; machines that were lost, and those of
    them that a wave took again."""

    unserved: float
    under_s: float
    usd: float
    lost: int
    again: int


def lived(keeper: Keeper, seed: int) -> Outcome:
    """Six hours."""
    draw = np.random.default_rng(seed)
    fleet: list[Machine] = []
    _carried_out(fleet, keeper.wanted(-LEAD_S, fleet, {}), -LEAD_S)
    struck: dict[float, set[str]] = {}
    missing, under_s, usd, lost_in_all, again = 0.0, 0.0, 0.0, 0, 0
    for step in range(round(LENGTH_S / STEP_S)):
        at_s = step * STEP_S
        lost: Counter[str] = Counter()
        for machine in list(fleet):
            if OFFERS[machine.offer].contract != "interruptible":
                continue
            wave = next((w for w in WAVES_S if w <= at_s < w + WAVE_S), None)
            if wave is not None and wave not in struck:
                struck[wave] = _struck(fleet)
            hit = wave is not None and machine.offer in struck[wave]
            is_first = hit and machine.since_s <= (wave or 0.0)
            life_s = LIFE_IN_WAVE_S if hit else LIFE_S
            if is_first or draw.random() < -math.expm1(-STEP_S / life_s):
                fleet.remove(machine)
                lost[machine.offer] += 1
                again += hit and not is_first
        lost_in_all += lost.total()
        _carried_out(fleet, keeper.wanted(at_s, fleet, lost), at_s)
        capacity = sum(machine.serves(at_s + STEP_S / 2) for machine in fleet) * RPS_PER_MACHINE
        missing += max(0.0, LOAD_RPS - capacity) * STEP_S
        under_s += STEP_S * (capacity < LOAD_RPS)
        usd += sum(OFFERS[machine.offer].price_usd_per_hour for machine in fleet) * STEP_S / 3600.0
    return Outcome(missing / (LOAD_RPS * LENGTH_S), under_s, usd, lost_in_all, again)


def _struck(fleet: Sequence[Machine]) -> set[str]:
    """The places of the provider that most spot machines are of."""
    providers = Counter(OFFERS[m.offer].provider for m in fleet if OFFERS[m.offer].contract == "interruptible")
    provider = max(sorted(providers), key=lambda name: providers[name])
    return {offer.offer_id for offer in SPOT if offer.provider == provider}


def _carried_out(fleet: list[Machine], wanted: Mapping[str, int], at_s: float) -> None:
    """What is not wanted any more goes, the newest first; what is missing starts."""
    has = Counter(machine.offer for machine in fleet)
    for name in {*has, *wanted}:
        more = wanted.get(name, 0) - has[name]
        fleet.extend(Machine(name, at_s) for _ in range(more))
        for machine in sorted((m for m in fleet if m.offer == name), key=lambda m: -m.since_s)[: max(0, -more)]:
            fleet.remove(machine)


def table(seeds: int) -> Iterator[str]:
    heads = ("unserved, %", "under, min", "$", "lost", "lost again in a wave")
    yield f"| kept by | {' | '.join(heads)} |"
    yield "|---" * (1 + len(heads)) + "|"
    for name, keeper in KEEPERS.items():
        found = [lived(keeper(), seed) for seed in range(seeds)]
        unserved, under_s, usd, lost, again = (
            sum(getattr(one, what) for one in found) / len(found)
            for what in ("unserved", "under_s", "usd", "lost", "again")
        )
        yield f"| {name} | {100 * unserved:.2f} | {under_s / 60:.1f} | {usd:.2f} | {lost:.1f} | {again:.1f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("preemption", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="draws (default: 5)")
    options = parser.parse_args(arguments)
    lines = ["# Mass preemptions", "", str(__doc__).partition("\n\n")[2]]
    for line in table(options.seeds):
        print(line, flush=True)
        lines.append(line)
    (options.out / "preemption.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
