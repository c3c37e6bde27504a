"""How much load the service takes: `python -m benchmarks.service`.

Starts the real `sutler serve`, asks it for the current plan of a deployment as many clients do, with and without
solves and long polls beside it, and measures starting, waking who waits, and planning. Writes a text and the same as
JSON. `--quick` is a look, not a measurement. Exit 1 where a target was missed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.scratch import scratch_folder, tell
from benchmarks.service_measures import Lengths, measured
from benchmarks.service_text import missed, text_of

_RESULTS: Final = Path(__file__).parent / "results"
FULL: Final = Lengths(starts=5, rounds=5, open_s=6.0, closed_s=3.0, pairs=6, wakes=10, plans=50)
QUICK: Final = Lengths(starts=1, rounds=1, open_s=3.0, closed_s=2.0, pairs=1, wakes=2, plans=5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    with scratch_folder() as folder:
        report = measured(folder, QUICK if options.quick else FULL, tell=tell)
    shown = text_of(report)
    name = "service-quick" if options.quick else "service"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.txt").write_text(shown)
    (options.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(shown, end="")
    return int(bool(missed(report)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="half a minute, for a look")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder for the results (default: beside this)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
