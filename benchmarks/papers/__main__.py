"""The papers' evaluations again: `python -m benchmarks.papers` (`make papers`).

Runs every cell by every strategy, keeps what is done in build/papers.jsonl, and writes docs/papers.md with its plots
and benchmarks/results/papers.txt and papers.json. `--part grid,melange` runs some parts, and the report is then of
what is kept; `--report` runs nothing. Exit 1 where a plan violates its problem or beats what sutler proved.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.papers import cauchy, grid, melange, splitwise
from benchmarks.papers.cells import PARTS, Cell
from benchmarks.papers.report import write
from benchmarks.papers.running import read, run
from benchmarks.scratch import tell

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / "build" / "papers.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    cells = all_cells()
    if not options.report:
        chosen = [cell for cell in cells if cell.part in options.part and _fits(cell, options.only)]
        run(chosen, jobs=options.jobs, kept=options.kept, tell=tell)
    return int(not write(cells, read(options.kept), docs=options.docs, results=options.out))


def all_cells() -> list[Cell]:
    return [*grid.cells(), *melange.cells(), *cauchy.cells(), *splitwise.cells()]


def _fits(cell: Cell, only: str) -> bool:
    return only in cell.name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers", description=__doc__.partition("\n")[0])
    parser.add_argument("--part", type=_parts, default=list(PARTS), help=f"of {','.join(PARTS)} (default: all)")
    parser.add_argument("--only", default="", help="cells with this in their name, such as llama-3-8b")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--kept", type=Path, default=KEPT, help="file of outcomes (default: build/papers.jsonl)")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is kept")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for papers.md and papers/")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for papers.txt")
    return parser


def _parts(value: str) -> list[str]:
    asked = value.split(",")
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
