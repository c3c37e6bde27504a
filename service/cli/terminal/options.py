"""Options and arguments that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Output = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead.")]
PlanOutput = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Also write the plan to a JSON file.")]
ProblemFile = Annotated[
    Path, typer.Argument(help="Problem file, YAML or JSON (`sutler schema problem`); - reads standard input.")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (`sutler plan --json`); - reads standard input.")]
ApplicationFile = Annotated[
    Path,
    typer.Argument(
        metavar="APP", help="Application file, YAML or JSON (`sutler schema application`); - reads stdin."
    ),
]
OfflinePlanFile = Annotated[
    Path, typer.Argument(help="Plan file (`sutler offline plan --json`); - reads standard input.")
]
