"""How fast the store is: `python -m benchmarks.market`.

Polls a market of 2,000 offers over loopback into an empty store, then fills another with a month of polls, about
10^7 rows, and reads it as of now and of past instants. Writes a text and the same as JSON. `--rows` makes the month
shorter, `--quick` makes it a morning. Exit 1 where a target was missed.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.market_measures import measured
from benchmarks.market_text import missed, text_of
from benchmarks.program import parser_of, write_results
from benchmarks.scratch import scratch_folder, tell

FULL_ROWS: Final = 10_000_000
QUICK_ROWS: Final = 100_000
LEAST_ROWS: Final = 20_000
BYTES_PER_ROW: Final = 500  # with indexes and the log of what is being written
SPARE_BYTES: Final = 2_000_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    rows = QUICK_ROWS if options.quick else options.rows
    with scratch_folder(options.data_dir) as folder:
        _check_room(folder, rows)
        report = measured(folder, rows, tell=tell)
    shown = text_of(report)
    name = "market" if rows == FULL_ROWS else "market-quick" if options.quick else f"market-{rows}"
    write_results(options.out, name, shown, report)
    return int(bool(missed(report)))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("market", __doc__)
    parser.add_argument("--rows", type=_rows, default=FULL_ROWS, help="offer rows stored (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows")
    parser.add_argument("--data-dir", type=Path, help="for the stores, which are removed (default: a new folder)")
    return parser


def _rows(value: str) -> int:
    rows = int(value)
    if rows < LEAST_ROWS:
        raise argparse.ArgumentTypeError(f"must be at least {LEAST_ROWS}, for some history of 2,000 offers")
    return rows


def _check_room(folder: Path, rows: int) -> None:
    needed, free = rows * BYTES_PER_ROW + SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        where = f"{folder.parent}: {free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB needed"
        raise SystemExit(f"{where}: name another folder with --data-dir, or fewer --rows")


if __name__ == "__main__":
    sys.exit(main())
