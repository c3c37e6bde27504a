"""Whether what infeasible plans say has to give is enough, and the least: `python -m benchmarks.remedies`.

Random problems with limits that are too tight (tests/solver/explanation/remedies.py) are planned, changed as their
conflicts say and planned again; then once more with 1.5 % (or one GPU) less of what is farthest off. Exit 1 where a
changed problem has no plan.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from tests.solver.explanation.remedies import Judged, infeasible_problems, judged


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge so many problems of either kind of rates; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remedies", description=__doc__.partition("\n")[0])
    parser.add_argument("--measured", type=int, default=240, help="problems with measured rates (default: 240)")
    parser.add_argument("--estimated", type=int, default=60, help="problems with estimated rates (default: 60)")
    options = parser.parse_args(arguments)
    enough = True
    for words, number, estimated in (("measured", options.measured, False), ("estimated", options.estimated, True)):
        started = time.monotonic()
        verdicts = [judged(problem) for problem in islice(infeasible_problems(estimated=estimated), number)]
        print(
            f"{number} infeasible problems with {words} rates, {time.monotonic() - started:.0f} s\n{_text(verdicts)}"
        )
        enough = enough and all(verdict.enough for verdict in verdicts if verdict.changed)
    return 0 if enough else 1


def _text(verdicts: Sequence[Judged]) -> str:
    changed = [verdict for verdict in verdicts if verdict.changed]
    names = Counter(_kind(conflict.constraint) for verdict in verdicts for conflict in verdict.conflicts)
    return "\n".join(
        [
            f"  {len(changed)} ask for values that can be set; the others for what the market does not have",
            f"  {sum(v.enough for v in changed)} of them have a plan with these values",
            f"  {sum(v.least for v in changed)} have none with 1.5 % less of the value that is farthest off",
            f"  {sum(v.every for v in changed)} have none with 1.5 % less of any value",
            f"  asked for: {', '.join(f'{name} {times}' for name, times in names.most_common())}",
        ]
    )


def _kind(constraint: str) -> str:
    kind, _, rest = constraint.partition("/")
    return rest.partition("/")[0] if kind == "limit" else kind


if __name__ == "__main__":
    raise SystemExit(main())
