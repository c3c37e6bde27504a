"""How much load the service takes: `python -m benchmarks.service`.

Starts the real `sutler serve`, asks it for the current plan of a deployment as many clients do, with and without
solves and long polls beside it, and measures starting, waking who waits, and planning. Writes a text and the same as
JSON. `--quick` is a look, not a measurement. Exit 1 where a target was missed.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.program import parser_of, write_results
from benchmarks.scratch import scratch_folder, tell
from benchmarks.service_measures import Lengths, measured
from benchmarks.service_text import missed, text_of

FULL: Final = Lengths(starts=5, rounds=5, open_s=6.0, closed_s=3.0, pairs=6, wakes=10, plans=50)
QUICK: Final = Lengths(starts=1, rounds=1, open_s=3.0, closed_s=2.0, pairs=1, wakes=2, plans=5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    with scratch_folder() as folder:
        report = measured(folder, QUICK if options.quick else FULL, tell=tell)
    shown = text_of(report)
    name = "service-quick" if options.quick else "service"
    write_results(options.out, name, shown, report)
    return int(bool(missed(report)))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("service", __doc__)
    parser.add_argument("--quick", action="store_true", help="half a minute, for a look")
    return parser


if __name__ == "__main__":
    sys.exit(main())
