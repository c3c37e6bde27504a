"""What the benchmarks have in common as programs: a parser that knows --out, and results as text and as JSON."""

import argparse
import json
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parent / "results"


def parser_of(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser of `python -m benchmarks.NAME`, described by the first line of the module's docstring."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=str(description).partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results (default: beside this)")
    return parser


def write_results(folder: Path, name: str, shown: str, report: object) -> None:
    """Writes NAME.txt and NAME.json, and prints the text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text(shown)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(shown, end="")
