"""Rates that a deployment learns of its own engines: `python -m benchmarks.learnt_rates`.

A plan for the least cost is simulated under random arrivals on engines of a known speed, and read every quarter of a
minute for ten minutes. Beside what was learnt stands the truth, and beside the next plan that of one who knows it.
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from sutler.service.deployments.rates.applying import NOTHING, learn
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.library.problems import problem_document
from tests.service.deployments.rates.played import START, a_plan, a_problem, a_truth, known_perfectly, told

GPUS: Final = ("h100-sxm", "a100-sxm4-80gb", "l40s")
SPEEDS: Final = (0.7, 0.85, 1.0, 1.15, 1.3)
LOADS: Final = (0.3, 0.6, 0.9)
HEADINGS: Final = ("GPU", "true speed", "load", "learnt", "off by", "$/h stated", "$/h learnt", "$/h by the truth")


def main() -> int:
    """Prints the table, and writes it as learnt-rates.md."""
    out = parser_of("learnt_rates", __doc__).parse_args().out
    machine = describe_machine()
    lines = ["# Rates that are learnt of engines whose speed is known", "", *(__doc__ or "").splitlines()[2:], ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for row in rows():
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        f"sutler {machine['sutler']}, {machine['date']}; seeds are fixed, so that any machine finds the same.",
    ]
    (out / "learnt-rates.md").write_text("\n".join(lines) + "\n")
    return 0


def rows() -> Iterator[tuple[str, ...]]:
    """One for each GPU, speed and load."""
    now = START + timedelta(seconds=720)
    for gpu in GPUS:
        problem = a_problem(20.0, gpu)
        plan = a_plan(problem)
        for speed in SPEEDS:
            best = a_plan(problem, known_perfectly(a_truth(speed)))
            for load in LOADS:
                readings = told(plan, a_truth(speed), load=load)
                lesson = learn(NOTHING.learnt, readings, problem_document(problem), plan, PolicyDocument(), now)
                [shift] = lesson.shifts
                learnt = a_plan(problem, lesson.calibration)
                costs = (f"{one.cost_usd_per_hour or 0.0:.2f}" for one in (plan, learnt, best))
                yield (
                    gpu,
                    f"{speed:g}",
                    f"{load:g}",
                    f"{shift.faster:.3f}",
                    f"{shift.faster / speed - 1:+.1%}",
                    *costs,
                )


if __name__ == "__main__":
    sys.exit(main())
