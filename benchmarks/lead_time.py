"""Capacity for traffic that climbs: `python -m benchmarks.lead_time`.

One model on machines that are all alike, some of which serve 200 requests/s; the looks of the service at every report
of a gateway; machines serve once they have started and fetched the weights. Traffic is Poisson, and then: climbs by
2 % every 5 s for ten minutes, doubles in ten minutes, trebles at once, is ten times as much for ten seconds, swings,
or does nothing. Beside sutler as it is: sutler that orders for what is there alone (`lead_quantile: null`), and a
plain autoscaler, which keeps machines as busy as sutler's headroom leaves them and gives up what five minutes did
not need (as Kubernetes' does by default). Windows are the gateway's reports; the first that count come when the
change could have been seen, which is two windows of the policy, and what was ordered then serves; the last of a climb
when what was ordered at its end does.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import numpy as np

from benchmarks.program import parser_of
from sutler.service.deployments.traffic.window import Observation
from tests.service.deployments.replanning.builders import START, a_problem, an_offer, known_of
from tests.service.deployments.replanning.worlds import World, a_world, machines

BASE_RPS: Final = 200.0
RPS_PER_MACHINE: Final = 20.0
HEADROOM: Final = 0.2
USD_PER_HOUR: Final = 2.0
LEAD_S: Final = 90.0 + 16.06 / 0.25
"""Start-up, and the weights of Llama 3.1 8B at 0.25 GB/s."""
WARM_S: Final = 4 * 3600.0
SEEN_AFTER_S: Final = 240.0
POLICY: Final = {
    "startup_s": 90.0,
    "download_gb_per_s": 0.25,
    "shrink_after_s": 10_800.0,
    "cooldown_s": 900.0,
    "urgent_payback_s": 120.0,
    "horizon_s": 14_400.0,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests/s by seconds after the change, for so long, of which windows count until `counts_s`; `is_new`: there
    is something to be seen first."""

    name: str
    rps: Callable[[float], float]
    length_s: float
    counts_s: float = math.inf
    is_new: bool = True


SHAPES: Final = (
    Shape("2 % per 5 s", lambda t: BASE_RPS * 1.02 ** (min(t, 600) / 5), 3600.0, 600.0 + LEAD_S),
    Shape("x 2 in 10 min", lambda t: BASE_RPS * 2 ** (min(t, 600) / 600), 3600.0, 600.0 + LEAD_S),
    Shape("x 3 at once", lambda t: BASE_RPS * 3, 3600.0),
    Shape("x 10 for 10 s", lambda t: BASE_RPS * (10 if t <= 10 else 1), 3600.0),
    Shape("swings in 2 h", lambda t: BASE_RPS * (1.5 + math.sin(2 * math.pi * t / 7200)), 14_400.0, is_new=False),
    Shape("steady", lambda t: BASE_RPS, 14_400.0, is_new=False),
)


class Keeper(Protocol):
    """Says how many machines there are to be, from the reports so far, the newest last."""

    def machines(self, at_s: float, reports: Sequence[Observation]) -> int: ...


@dataclass(slots=True)
class Sutler:
    """A deployment whose plans are carried out at once."""

    lead_quantile: float | None
    world: World = field(init=False)

    def __post_init__(self) -> None:
        problem = a_problem(BASE_RPS, 1e-4, objective={"kind": "min_cost", "headroom_fraction": HEADROOM})
        policy = {**POLICY, "lead_quantile": self.lead_quantile}
        self.world = a_world(an_offer(available=1000), problem=problem, policy=policy, settled_in=False)

    def machines(self, at_s: float, reports: Sequence[Observation]) -> int:
        world = self.world
        world.now = START + timedelta(seconds=at_s)
        world.poll()
        since = world.now - timedelta(seconds=POLICY["shrink_after_s"])
        recent = [one for one in reports if one.ended_at > since]
        world.traffic = known_of(recent, at=world.now, policy=world.policy, planned=world.planned)
        world.look()
        return sum(machines(world).values())


@dataclass(slots=True)
class Autoscaler:
    """As many machines as the newest report needs at the target, and at least what the last minutes did."""

    stabilisation_s: float = 300.0
    wanted: list[tuple[float, int]] = field(default_factory=list)

    def machines(self, at_s: float, reports: Sequence[Observation]) -> int:
        newest = reports[-1]
        rps = newest.requests / (newest.ended_at - newest.started_at).total_seconds()
        self.wanted.append((at_s, max(1, math.ceil(rps * (1 + HEADROOM) / RPS_PER_MACHINE - 1e-9))))
        return max(count for at, count in self.wanted if at > at_s - self.stabilisation_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of the windows that count: the share in which not all is carried, and of all requests those that are not."""

    under: float
    unserved: float
    usd: float
    changes: int
    most: int


@dataclass(slots=True)
class Fleet:
    """Machines that serve, and those that were ordered: (when they serve, how many)."""

    serving: int
    ordered: list[tuple[float, int]] = field(default_factory=list)

    @property
    def paid(self) -> int:
        return self.serving + sum(count for _, count in self.ordered)

    def until(self, at_s: float) -> None:
        self.serving += sum(count for ready_s, count in self.ordered if ready_s <= at_s)
        self.ordered = [(ready_s, count) for ready_s, count in self.ordered if ready_s > at_s]

    def to(self, count: int, at_s: float) -> None:
        """What does not serve yet is given up first, the newest before others."""
        if count > self.paid:
            self.ordered.append((at_s + LEAD_S, count - self.paid))
        while count < self.paid and self.ordered:
            ready_s, last = self.ordered.pop()
            if (less := min(last, self.paid + last - count)) < last:
                self.ordered.append((ready_s, last - less))
        self.serving -= max(0, self.paid - count)


def lived(shape: Shape, keeper: Keeper, *, slice_s: float, seed: int) -> Outcome:
    """The time after the change, and hours of steady traffic before."""
    draw = np.random.default_rng(seed)
    reports = list(_reports(shape, draw, slice_s))
    fleet = Fleet(math.ceil(BASE_RPS * (1 + HEADROOM) / RPS_PER_MACHINE) + 1)
    first_s = SEEN_AFTER_S + LEAD_S if shape.is_new else 0.0
    rows, usd, changes, most = [], 0.0, 0, 0
    warm = round(WARM_S / slice_s)
    for number in range(warm, len(reports)):
        at_s = (number - warm) * slice_s
        count = keeper.machines(at_s, reports[:number])
        changes += count != fleet.paid
        fleet.to(count, at_s)
        usd += fleet.paid * USD_PER_HOUR * slice_s / 3600
        most = max(most, fleet.paid)
        fleet.until(at_s + slice_s)
        rows.append((at_s + slice_s, shape.rps(at_s + slice_s / 2), fleet.serving * RPS_PER_MACHINE))
    counted = [(rps, capacity) for end_s, rps, capacity in rows if first_s < end_s <= shape.counts_s]
    missing = sum(max(0.0, rps - capacity) for _, rps, capacity in rows)
    return Outcome(
        sum(rps > capacity for rps, capacity in counted) / len(counted),
        missing / sum(rps for _, rps, _ in rows),
        usd,
        changes,
        most,
    )


def _reports(shape: Shape, draw: np.random.Generator, slice_s: float) -> Iterator[Observation]:
    for begin_s in np.arange(-WARM_S, shape.length_s, slice_s):
        middle_s = float(begin_s) + slice_s / 2
        rps = BASE_RPS if shape.is_new and middle_s <= 0 else shape.rps(middle_s)
        requests = float(draw.poisson(rps * slice_s))
        begin = START + timedelta(seconds=float(begin_s))
        yield Observation(
            "chat", "gateway", begin, begin + timedelta(seconds=slice_s), requests, ((500.0, 250.0, requests),)
        )


KEEPERS: Final[dict[str, Callable[[], Keeper]]] = {
    "sutler": lambda: Sutler(0.9),
    "what is there alone": lambda: Sutler(None),
    "autoscaler": Autoscaler,
}


def table(slice_s: float, seeds: Sequence[int]) -> Iterator[str]:
    heads = ("under, %", "unserved, %", "$", "changes", "most machines")
    yield f"| reports every {slice_s:g} s | kept by | {' | '.join(heads)} |"
    yield "|---" * (2 + len(heads)) + "|"
    for shape in SHAPES:
        for name, keeper in KEEPERS.items():
            found = [lived(shape, keeper(), slice_s=slice_s, seed=seed) for seed in seeds]
            under, unserved, usd, changes, most = (
                sum(getattr(one, what) for one in found) / len(found)
                for what in ("under", "unserved", "usd", "changes", "most")
            )
            told = f"{100 * under:.1f} | {100 * unserved:.2f} | {usd:.2f} | {changes:.1f} | {most:.0f}"
            yield f"| {shape.name} | {name} | {told} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("lead_time", __doc__)
    parser.add_argument("--seeds", type=int, default=3, help="draws of the traffic (default: 3)")
    options = parser.parse_args(arguments)
    lines = ["# Capacity for traffic that climbs", "", str(__doc__).partition("\n\n")[2]]
    for slice_s in (15.0, 60.0):
        for line in table(slice_s, range(options.seeds)):
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    (options.out / "lead-time.md").write_text("\n".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
