"""Are plans' chances true? On the living fake market, somebody comes ten minutes after each plan and looks.

The market is polled every five minutes; plans are made with what polls had seen by then, and stated with what was
learnt of the days before. Then the market itself says which machines have as many GPUs free. Three rates of churn,
which nothing was tuned on. `make outlook-bench` writes benchmarks/results/outlook.md.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Final
from uuid import UUID

import numpy as np

from benchmarks.scratch import tell
from sutler.adapters.fake.market import FakeMachine, Market
from sutler.service.documents.plan import PlanDocument, RentalDocument, SpareDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.market.outlook import Outlook
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.spares import with_chances
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.outlook.cells import estimates
from sutler.solver.outlook.chances import Prospects
from sutler.solver.outlook.lives import Slot, Spell, watched

CHURNS: Final = (0.4, 1.5, 5.0)
CLOUD: Final = "vastai"
START: Final = datetime(2026, 11, 2, tzinfo=UTC)
POLL_S: Final = 300.0
LEARNT_DAYS: Final = 4
SIZES: Final = (1, 2, 4, 8)
MOST_MACHINES: Final = 3  # of a plan
MINUTES: Final = 10  # of the time until somebody comes, at which it is looked whether machines stayed
RESULT: Final = Path(__file__).parent / "results" / "outlook.md"


@dataclass(frozen=True, slots=True)
class Seen:
    """What polls saw: when, and of every machine the GPUs free and the price per GPU, 0 where it is not for rent."""

    market: Market
    machines: tuple[FakeMachine, ...]
    polls_s: FloatArray
    free: IntArray
    usd_per_gpu_hour: FloatArray


def polled(churn: float, *, days: float, seed: int, machines: int) -> Seen:
    market = Market(seed=seed, machines=machines, churn=churn)
    own = market.of(CLOUD)
    polls_s = START.timestamp() + np.arange(0.0, days * 86_400, POLL_S)
    free, price = np.zeros((len(own), len(polls_s)), np.int64), np.zeros((len(own), len(polls_s)))
    for j, at_s in enumerate(polls_s):
        for i, machine in enumerate(own):
            state = market.state(machine, float(at_s))
            if state is not None:
                free[i, j], price[i, j] = len(state.free), state.usd_per_gpu_hour
    return Seen(market, own, polls_s, free, price)


def learnt(seen: Seen, until: int) -> Outlook:
    """What is known after so many polls."""
    slots, spells = [], []
    for i, machine in enumerate(seen.machines):
        for size in (size for size in SIZES if machine.smallest_slice <= size <= machine.gpus):
            slots.append(a_slot(machine, size))
            spells.append(list(_spells(seen.free[i, :until] >= size, seen.polls_s)))
    lives = watched(slots, spells, seen.polls_s[:until])
    at = datetime.fromtimestamp(float(seen.polls_s[until - 1]), UTC)
    return Outlook(at, Prospects(estimates(lives)))


def a_slot(machine: FakeMachine, gpus: int) -> Slot:
    return Slot(CLOUD, machine.gpu.slug, "on_demand", gpus, str(machine.number), str(machine.host))


def _spells(there: BoolArray, polls_s: FloatArray) -> Iterator[Spell]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int)))
    for first, then in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield Spell(float(polls_s[first]), float(polls_s[then]) if then < len(there) else np.inf)


def plans(seen: Seen, until: int, outlook: Outlook) -> Iterator[PlanDocument]:
    """The cheapest fleets of one, two and three machines of every GPU and size, stated with their chances."""
    offers: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for i, machine in enumerate(seen.machines):
        free, price = int(seen.free[i, until - 1]), float(seen.usd_per_gpu_hour[i, until - 1])
        for size in (size for size in SIZES if machine.smallest_slice <= size <= free):
            offers.setdefault((machine.gpu.slug, size), []).append(an_offer(machine, size, price * size, outlook.at))
    for (gpu, size), own in sorted(offers.items()):
        for machines in range(1, min(MOST_MACHINES, len(own) - 1) + 1):
            yield stated(a_problem(gpu, size, machines, own, outlook.at), outlook)


def an_offer(machine: FakeMachine, gpus: int, price: float, at: datetime) -> dict[str, Any]:
    return {
        "provider": CLOUD,
        "offer_id": f"{machine.number}-{gpus}",
        "machine_id": str(machine.number),
        "host_id": str(machine.host),
        "gpu": machine.gpu.slug,
        "gpus": gpus,
        "available": 1,
        "price_usd_per_hour": price,
        "contract": "on_demand",
        "observed_at": at.isoformat(),
    }


def a_problem(gpu: str, gpus: int, machines: int, offers: list[dict[str, Any]], at: datetime) -> dict[str, Any]:
    """A load that so many machines carry, at rates that are given: each serves one request a second."""
    workload = {"name": "w", "input_tokens": 500, "output_tokens": 100, "rate_rps": 0.8 * machines}
    stages = [{"gpu": gpu, "tensor_parallel": gpus}]
    return {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "m", "model": "llama-3-8b", "precision": "bf16", "workloads": [workload]}],
        "throughput": {"only": True, "table": [{"model": "m", "stages": stages, "rps": {"w": 1.0}}]},
        "market": {"offers": {"schema": "sutler/market/v1", "taken_at": at.isoformat(), "offers": offers}},
        "solver": {"alternatives": False, "time_limit_s": 10},
    }


def stated(problem: dict[str, Any], outlook: Outlook) -> PlanDocument:
    translation = to_problem(validate(ProblemDocument, problem), folder=None, now=outlook.at)
    plan = issue_plan(solve(translation.problem), translation, plan_id=UUID(int=1), created_at=outlook.at)
    return with_chances(plan, translation, outlook, outlook.at)


def is_there(market: Market, rental: RentalDocument | SpareDocument, at: datetime) -> bool:
    machine = next(m for m in market.of(CLOUD) if str(m.number) == rental.machine_id)
    state = market.state(machine, at.timestamp())
    return state is not None and len(state.free) >= rental.gpus


@dataclass(frozen=True, slots=True)
class Tried:
    """One plan: what it stated, and what was there."""

    stated: float
    stayed: bool
    was: bool
    stated_with_spares: float
    was_with_spares: bool


def tried(market: Market, plan: PlanDocument) -> Tried | None:
    found = plan.availability
    if found is None:
        return None
    at = plan.created_at + timedelta(seconds=found.within_s)
    there = [is_there(market, rental, at) for rental in plan.rentals]
    spared = [
        first or any(is_there(market, spare, at) for spare in rental.spares)
        for first, rental in zip(there, plan.rentals, strict=True)
    ]
    passed = (plan.created_at + (at - plan.created_at) * minute / MINUTES for minute in range(1, MINUTES + 1))
    stayed = all(is_there(market, rental, then) for then in passed for rental in plan.rentals)
    return Tried(found.chance_fraction, stayed, all(there), found.chance_with_spares_fraction, all(spared))


def trials(churn: float, *, seed: int, machines: int, days: int, learnt_days: int, every_polls: int) -> list[Tried]:
    """Plans at instants after the first days, each with what was known by then."""
    seen = polled(churn, days=days, seed=seed, machines=machines)
    found = []
    for until in range(int(learnt_days * 86_400 / POLL_S), len(seen.polls_s), every_polls):
        outlook = learnt(seen, until)
        found += [one for plan in plans(seen, until, outlook) if (one := tried(seen.market, plan)) is not None]
    return found


def row(churn: float, found: Sequence[Tried]) -> str:
    names = ("stated", "stayed", "was", "stated_with_spares", "was_with_spares")
    told, stayed, was, spared, was_spared = (fmean(getattr(one, name) for one in found) for name in names)
    shares = (told, stayed, was, told - was, spared, was_spared, spared - was_spared)
    return f"| {churn:g} | {len(found):,} | " + " | ".join(f"{100 * share:.1f}" for share in shares) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--every-polls", type=int, default=53, help="polls between instants that plans are made at")
    parser.add_argument("--seed", type=int, default=20261125)
    options = parser.parse_args()
    begun, rows = perf_counter(), []
    for churn in CHURNS:
        found = trials(
            churn,
            seed=options.seed,
            machines=options.machines,
            days=options.days,
            learnt_days=LEARNT_DAYS,
            every_polls=options.every_polls,
        )
        rows.append(row(churn, found))
        tell(rows[-1])
    heads = (
        "| churn | plans | stated, % | stayed, % | were there, % | off by "
        "| stated with spares, % | there, % | off by |"
    )
    about = (
        f"Plans of one to three machines on a played Vast.ai ({options.machines} machines at all clouds, seed "
        f"{options.seed}), made at instants of days {LEARNT_DAYS + 1} to {options.days}; ten minutes later "
        "the market was asked. "
        "Stayed: were there at every minute until then; some go and come back. "
        "Churn 1 is the fake market as it is."
    )
    table = "\n".join([heads, "|" + "---|" * 9, *rows])
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(f"# The outlook against the market\n\n{about}\n\n{table}\n", encoding="utf-8")
    tell(f"{perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
