"""`sutler offline run-plan`: an offline plan in, the schedule or the script that carries it out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import Exit, guarded, say

if TYPE_CHECKING:
    from sutler.service.offline.schedule_schema import OfflineScheduleDocument


@guarded
def run_plan(
    plan: Annotated[Path, typer.Argument(help="Plan file (`sutler offline plan --json`); - reads standard input.")],
    format: Annotated[
        Literal["json", "sh"],
        typer.Option("--format", "-f", help="Steps as JSON (`sutler schema offline-schedule`), or a bash script."),
    ] = "json",
    host: Annotated[
        int | None, typer.Option("--host", metavar="N", help="Whose script, where a plan has several hosts.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_535, help="First port of the servers of a host.")
    ] = 8000,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead.")] = None,
) -> None:
    """Say how to carry out an offline plan: which servers to start and to stop on which GPUs, step after step.

    Exit status: 0 written (warnings on stderr say what to look at before running it), 2 bad input, 3 nothing to run.
    """
    from sutler.service.cli.offline_reading import read_plan
    from sutler.service.cli.terminal.output import check_target, write_file, write_stdout
    from sutler.service.documents.errors import DocumentError
    from sutler.service.export import NothingToRunError
    from sutler.service.offline.running import schedule_of, script_of

    if out is not None:
        check_target(out)
    if host is not None and format == "json":
        raise DocumentError.of("--host", "goes with --format sh: the JSON has all hosts", value=host)
    try:
        schedule = schedule_of(read_plan(plan), first_port=port)
    except NothingToRunError as error:
        say(f"error: {error}")
        raise typer.Exit(Exit.INFEASIBLE) from error
    text = schedule_json(schedule) if format == "json" else script_of(schedule, host=host)
    for warning in schedule.warnings:
        say(f"warning: {warning}")
    if out is None:
        write_stdout(text.encode())
    else:
        write_file(out, text.encode())


def schedule_json(schedule: "OfflineScheduleDocument") -> str:
    """As it is printed, ended by a line feed."""
    import json

    data = schedule.model_dump(mode="json", by_alias=True)
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
