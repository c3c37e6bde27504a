"""What asking a plan to survive costs in time and money: `python -m benchmarks.survival` writes results/survival.txt.

Each case is solved without anything to survive, then for the loss of a provider, of a place and of a machine, one
after the other on the same machine. Times are ratios to the first; the price is what the value gives up.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.machine import describe_machine
from benchmarks.survival_cases import LOAD_FRACTION, problems
from benchmarks.survival_simulated import judged
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.problem import LossKind, Problem, Resilience

RESULTS: Final = Path(__file__).parent / "results" / "survival.txt"
ASKED: Final[tuple[tuple[LossKind, ...], ...]] = ((), ("provider",), ("place",), ("machine",))


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
    for survives in (True, False):
        found, asked = judged(survives=survives), "made to survive" if survives else "not asked to survive"
        lines.append(
            f"{found.plans} plans {asked} the loss of a provider, each of theirs lost once in a simulation: "
            f"{found.kept} go on to carry {LOAD_FRACTION:.0%}, but for chance; the least of all is "
            f"{found.least_fraction:.1%}"
        )
        print(lines[-1])
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


def timed(problem: Problem) -> tuple[Plan, float]:
    """The plan and the seconds that it took."""
    started = time.perf_counter()
    plan = solve(problem)
    return plan, time.perf_counter() - started


if __name__ == "__main__":
    main()
