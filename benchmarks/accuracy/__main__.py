"""How accurate the estimates are: `python -m benchmarks.accuracy FOLDER/serving_dense.csv` (`make accuracy`).

Prints a summary and writes it to benchmarks/results, and a report with plots to docs/accuracy.md. `--write FILE`
saves the fit on every run, with its residuals, as solver/calibration/calibration.toml. Without the file nothing is
done, with exit status 0: the runs are no part of the repository. Exit 2 where it is another table.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.accuracy.calibrated import SEEDS
from benchmarks.accuracy.findings import gather
from benchmarks.accuracy.report import write_report
from benchmarks.accuracy.summary import pooled, summary
from benchmarks.calibration_file import calibration_toml
from benchmarks.measurements import serving_runs
from benchmarks.scratch import tell
from sutler.solver.calibration.factors import REFERENCE_ENGINE
from sutler.solver.errors import SolverError
from sutler.solver.throughput.runs import ServingRun

ROOT: Final = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    if not options.csv.is_file():
        tell(
            f"{options.csv} is not there: skipped. Give the path of serving_dense.csv, which is not in the repository"
        )
        return 0
    try:
        runs = _two_gpus(serving_runs(options.csv))
    except KeyError as error:
        tell(f"{options.csv}: no column {error}; this is not serving_dense.csv")
        return 2
    except (SolverError, ValueError, OSError) as error:
        tell(f"{options.csv}: {error}")
        return 2
    _report(runs, options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.partition("\n")[0])
    parser.add_argument("csv", type=Path, help="serving_dense.csv; the other tables are looked for beside it")
    parser.add_argument("--write", type=Path, help="save the factors fitted on every run to this TOML file")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for accuracy.md and its plots")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder for accuracy.txt")
    parser.add_argument(
        "--seeds", type=int, default=SEEDS, help="draws of a few runs per group (default: %(default)s)"
    )
    return parser


def _two_gpus(runs: list[ServingRun]) -> list[ServingRun]:
    """Raises ValueError where no GPU can be left out."""
    if len({run.gpu.slug for run in runs if run.engine == REFERENCE_ENGINE}) < 2:
        raise ValueError(f"needs verified {REFERENCE_ENGINE} rows of two GPUs to leave one out")
    return runs


def _report(runs: list[ServingRun], options: argparse.Namespace) -> None:
    found = gather(options.csv, runs, refits=options.write is not None, seeds=options.seeds)
    text = summary(found)
    print(text, end="")
    (options.out / "accuracy.txt").write_text(text, encoding="utf-8")
    if options.write is not None:
        text = calibration_toml(found.shipped, options.csv, pooled(found), found.layers)
        options.write.write_text(text, encoding="utf-8")
    tell("the report")
    write_report(found, options.docs)


if __name__ == "__main__":
    sys.exit(main())
