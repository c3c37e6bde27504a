"""Options and arguments that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
Output = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead.")]
ProblemFile = Annotated[
    Path, typer.Argument(help="Problem file, YAML or JSON (`sutler schema problem`); - reads standard input.")
]
DescribedIn = Annotated[
    Path | None,
    typer.Option("--problem", metavar="FILE", help="A problem whose own GPUs (`gpus`) and models count as well."),
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (`sutler plan --json`); - reads standard input.")]
ApplicationFile = Annotated[
    Path,
    typer.Argument(
        metavar="APP", help="Application file, YAML or JSON (`sutler schema application`); - reads stdin."
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        metavar="NAME=VALUE",
        help="For all servers besides, by vLLM's names: gpu_memory_utilization=0.85, enforce_eager=true.",
    ),
]
OfflinePlanFile = Annotated[
    Path, typer.Argument(help="Plan file (`sutler offline plan --json`); - reads standard input.")
]


def prints(what: str) -> Any:
    """An option for JSON in place of what people read."""
    return typer.Option("--json", help=f"Print only {what}.")


def also_writes(what: str) -> Any:
    """An option for a file beside what is shown."""
    return typer.Option("--out", metavar="FILE", help=f"Also write {what} to a JSON file.")


def also_draws(what: str) -> Any:
    """An option for a figure beside what is shown."""
    return typer.Option(metavar="FILE", help=f"Also draw {what} (pip install 'sutler[plots]').")
