"""Whether replanning is worth it: `python -m benchmarks.replanning` (`make replanning-bench`).

A simulated day of a fleet on the fake clouds' living market under the traffic of the Azure traces, once as sutler
keeps it, once never replanned, once replanned at every change, and against an oracle whose changes are free; how in
benchmarks/README.md. `--quick`: two hours of one seed; `--seeds 1,2`: others than those of the report. Exit 1 where a
target is missed, 2 without the traces, which are no part of the repository.
"""

import argparse
import pickle
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.day.comparison import QUICK_LENGTH_S, Compared, compared
from benchmarks.day.pictures import draw
from benchmarks.day.report import missed, report_of, text_of
from benchmarks.day.sutler import sutler_policy
from benchmarks.day.traffic import DAY_S, TRACES, are_there
from benchmarks.machine import describe_machine
from benchmarks.program import parser_of, write_results
from benchmarks.scratch import tell

# Everything was tuned on these, and the others were drawn up before: they are run for the report alone.
TUNING_SEEDS: Final = (1, 2, 3, 101, 102)
UNSEEN_SEEDS: Final = tuple(range(201, 211))
_KEPT: Final = Path(__file__).parents[1] / "build" / "replanning"


def main(arguments: Sequence[str] | None = None) -> int:
    """Live all days and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    if not are_there():
        tell(f"the Azure traces are not in {TRACES.name}: put them beside the checkout, as shared/data/traces")
        return 2
    seeds = options.seeds or (TUNING_SEEDS[:1] if options.quick else UNSEEN_SEEDS)
    length_s = QUICK_LENGTH_S if options.quick else DAY_S
    found = _lived(seeds, length_s=length_s, jobs=options.jobs, resumes=options.resume)
    report = report_of(describe_machine(), found)
    shown = text_of(report)
    name = "replanning-quick" if options.quick else "replanning"
    write_results(options.out, name, shown, report)
    if not options.quick:
        draw(report, options.out)
    return int(bool(missed(report)))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("replanning", __doc__)
    parser.add_argument("--seeds", type=_seeds, help="market seeds, such as 1,2,3 (default: the unseen ones)")
    parser.add_argument("--jobs", type=int, default=2, help="seeds at a time (default: 2)")
    parser.add_argument("--quick", action="store_true", help="two hours of one seed, for a look")
    parser.add_argument(
        "--resume", action="store_true", help="take days that an earlier run has finished as they were"
    )
    return parser


def _seeds(value: str) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in value.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no list of whole numbers such as 1,2,3") from None


def _lived(seeds: Sequence[int], *, length_s: float, jobs: int, resumes: bool) -> list[Compared]:
    one = partial(_day, length_s=length_s, resumes=resumes)
    if jobs == 1:
        return [one(seed) for seed in seeds]
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        return list(pool.map(one, seeds))


def _day(seed: int, *, length_s: float, resumes: bool) -> Compared:
    """Kept when it is over: a run takes long, and may be ended by what has nothing to do with it."""
    kept = _KEPT / f"{seed}-{length_s:.0f}.pickle"
    if resumes and kept.exists():
        found: Compared = pickle.loads(kept.read_bytes())
        return found
    found = compared(seed, sutler_policy, length_s=length_s, tell=tell)
    _KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(pickle.dumps(found))
    return found


if __name__ == "__main__":
    sys.exit(main())
