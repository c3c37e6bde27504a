"""Ten variants of a problem side by side against ten plans of them: `python -m benchmarks.what_if`.

The paper's case at ten budgets, each way as people ask for it: one `sutler plan --budget ...`, or ten commands. The
processes run one after the other; processor seconds count, since others may be running. Exit 1 where the variants
cost more than half of the plans.
"""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Final, TypedDict

from benchmarks.machine import Machine, describe_machine
from benchmarks.program import parser_of, write_results

CASE: Final = Path(__file__).parent.parent / "examples" / "paper_case.yaml"
BUDGETS: Final = ("10", "12", "14", "16", "18", "20", "22", "24", "26", "28")
MOST_SHARE: Final = 0.5


class Found(TypedDict):
    """Processor seconds of the two ways, and the one as a share of the other."""

    machine: Machine
    variants_s: float
    plans_s: float
    share: float


def main() -> int:
    given = parser_of("what_if", __doc__).parse_args()
    variants_s = seconds_of(",".join(BUDGETS))
    plans_s = sum(seconds_of(budget) for budget in BUDGETS)
    found = Found(machine=describe_machine(), variants_s=variants_s, plans_s=plans_s, share=variants_s / plans_s)
    text = (
        f"{len(BUDGETS)} variants and the problem as it is in one command: {variants_s:.1f} s of processor time\n"
        f"{len(BUDGETS)} commands, a plan each: {plans_s:.1f} s\n"
        f"share: {found['share']:.2f} (at most {MOST_SHARE})\n"
    )
    write_results(given.out, "what_if", text, found)
    return int(found["share"] > MOST_SHARE)


def seconds_of(budget: str) -> float:
    """Processor seconds of one command, with all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "sutler", "plan", str(CASE), "--budget", budget, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
