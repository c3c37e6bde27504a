"""SamuLLM's evaluation again: `python -m benchmarks.offline` (`make offline-bench`).

Plans every application of the paper by four strategies, keeps what is done in build/offline.jsonl, and writes
benchmarks/results/offline.json and from it docs/offline-results.md. `--only ensembling` runs the settings with this
in their name, and the report is then of what is kept; `--report` runs nothing and writes the page from the JSON.
Exit 1 where sutler is slower than greedy, or a plan is faster than the lower bound.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.offline.report import report
from benchmarks.offline.results import read_results, write_results
from benchmarks.offline.run import read, run
from benchmarks.offline.settings import KNOWN_SEEDS, settings
from benchmarks.offline.summaries import beaten, refuted
from benchmarks.scratch import tell

ROOT: Final = Path(__file__).parents[2]
QUICK_SEEDS: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    path = options.out / "offline.json"
    if not options.report:
        chosen = [one for one in settings() if options.only in one.name and (one.is_quick or not options.quick)]
        run(chosen, kept=options.kept, tell=tell, known_seeds=QUICK_SEEDS if options.quick else KNOWN_SEEDS)
        write_results(*read(options.kept), path)
    results = read_results(path)
    options.docs.mkdir(parents=True, exist_ok=True)
    (options.docs / "offline-results.md").write_text(report(results), encoding="utf-8")
    return int(bool(beaten(results.outcomes) or refuted(results.outcomes)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="settings with this in their name, such as ensembling")
    parser.add_argument("--quick", action="store_true", help="a few settings and seeds, for a look")
    parser.add_argument("--report", action="store_true", help="run nothing, write the page from the JSON")
    parser.add_argument("--kept", type=Path, default=ROOT / "build" / "offline.jsonl", help="file of outcomes")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for offline-results.md")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for offline.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
