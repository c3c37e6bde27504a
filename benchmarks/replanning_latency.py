"""How quickly the service replans: `python -m benchmarks.replanning_latency`.

Starts the real `sutler serve` and times, on the case of arXiv 2502.00722, from a poll that takes away what the plan
rents, or a report that it is lost, to the next plan; and from a poll until 200 deployments have been looked at again.
Writes a text and the same as JSON. `--quick` is a look, not a measurement. Exit 1 where a target was missed.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of, write_results
from benchmarks.replanning_latency_case import measured_decisions
from benchmarks.replanning_latency_fleet import measured_fleet
from benchmarks.replanning_latency_text import Report, missed, text_of
from benchmarks.scratch import scratch_folder, tell


@dataclass(frozen=True, slots=True)
class Lengths:
    """How often each cause, how many deployments, and how long at the scheduler's own pace."""

    times: int
    deployments: int
    pace_s: float


FULL: Final = Lengths(times=10, deployments=200, pace_s=300.0)
QUICK: Final = Lengths(times=3, deployments=20, pace_s=0.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    lengths = QUICK if options.quick else FULL
    with scratch_folder() as folder:
        report = Report(
            machine=describe_machine(),
            decisions=measured_decisions(folder / "case", times=lengths.times, tell=tell),
            fleet=measured_fleet(
                folder / "fleet",
                deployments=lengths.deployments,
                machines=options.machines,
                pace_s=lengths.pace_s,
                tell=tell,
            ),
        )
    shown = text_of(report)
    name = "replanning-latency-quick" if options.quick else "replanning-latency"
    write_results(options.out, name, shown, report)
    return int(bool(missed(report)))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("replanning_latency", __doc__)
    parser.add_argument("--quick", action="store_true", help="three times each and 20 deployments, for a look")
    parser.add_argument("--machines", type=int, default=300, help="of all played clouds (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
