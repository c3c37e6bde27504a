"""What asking a plan to survive costs in time and money: `python -m benchmarks.survival` writes results/survival.txt.

Each case is solved without anything to survive, then for the loss of a provider, of a place and of a machine, one
after the other on the same machine. Times are ratios to the first; the price is what the value gives up.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.instances import single_offers
from benchmarks.machine import describe_machine
from benchmarks.robust import at_least_cost
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.problem import LossKind, Problem, Resilience

RESULTS: Final = Path(__file__).parent / "results" / "survival.txt"
PROVIDERS: Final = 5
REGIONS: Final = ("eu", "us")
ASKED: Final[tuple[tuple[LossKind, ...], ...]] = ((), ("provider",), ("place",), ("machine",))
LOAD_FRACTION: Final = 0.8


def main() -> None:
    """Solve all cases, print them and keep what was printed."""
    machine = describe_machine()
    lines = [", ".join(f"{key} {value}" for key, value in machine.items() if key != "packages"), "", HEADER]
    print(*lines, sep="\n")
    for name, problem in problems():
        first: tuple[Plan, float] | None = None
        for survive in ASKED:
            plan, seconds = timed(replace(problem, resilience=Resilience(survive, LOAD_FRACTION)))
            first = first or (plan, seconds)
            lines.append(row(name, survive, plan, seconds, first))
            print(lines[-1])
            sys.stdout.flush()
    RESULTS.write_text("\n".join([*lines, ""]), encoding="utf-8")


HEADER: Final = (
    f"{'case':<34} {'to survive':<12} {'status':<9} {'value':>9} {'gap':>7} {'s':>7} {'x':>6} {'price':>7}"
)


def row(name: str, survive: tuple[LossKind, ...], plan: Plan, seconds: float, first: tuple[Plan, float]) -> str:
    """One line of the table; the price is relative to the plan that survives nothing."""
    value, best, gap = plan.value or 0.0, first[0].value or 0.0, plan.relative_gap or 0.0
    price = abs(value - best) / best if best else 0.0
    return (
        f"{name:<34} {', '.join(survive) or 'nothing':<12} {plan.status:<9} {value:9.3f} {gap:7.2%} {seconds:7.2f} "
        f"{seconds / first[1]:6.2f} {price:7.1%}"
    )


def problems() -> Iterator[tuple[str, Problem]]:
    """Hundreds of single offers of two models on several providers: the most for a budget, and the least cost."""
    for slices in (False, True):
        for seed in (0, 1, 2):
            name = f"500 {'slices' if slices else 'singles'}, seed {seed}"
            problem = with_places(single_offers(seed=seed, budget_usd_per_hour=15.0, slices=slices), seed)
            yield f"{name}, 15 $/h", problem
            yield f"{name}, 40 req/s", with_places(at_least_cost(problem), seed)


def with_places(problem: Problem, seed: int) -> Problem:
    """The offers on several providers and regions, those of a machine together."""
    draw, options = np.random.default_rng(seed), replace(problem.options, alternatives=False, time_limit_s=60.0)
    homes: dict[str, tuple[str, str]] = {}
    offers = []
    for offer in problem.offers:
        machine = offer.machine_id or offer.offer_id
        if machine not in homes:
            homes[machine] = f"p{draw.integers(PROVIDERS)}", REGIONS[draw.integers(len(REGIONS))]
        provider, region = homes[machine]
        offers.append(replace(offer, provider=provider, region=region))
    return replace(problem, offers=tuple(offers), options=options)


def timed(problem: Problem) -> tuple[Plan, float]:
    """The plan and the seconds that it took."""
    started = time.perf_counter()
    plan = solve(problem)
    return plan, time.perf_counter() - started


if __name__ == "__main__":
    main()
