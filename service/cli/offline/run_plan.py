"""`sutler offline run-plan`: a plan in, the schedule or the script that carries it out, out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from typing import Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.options import Arguments, OfflinePlanFile, Output
from sutler.service.cli.terminal.output import check_target, json_bytes, write_or_print
from sutler.service.documents.errors import DocumentError


@guarded
def run_plan(
    plan: OfflinePlanFile,
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
    argument: Arguments = None,
    out: Output = None,
) -> None:
    """Say how to carry out an offline plan: which servers to start and to stop on which GPUs, step after step.

    Exit status: 0 written (warnings on stderr say what to look at before running it), 2 bad input, 3 nothing to run.
    """
    from sutler.service.cli.offline.reading import read_plan
    from sutler.service.offline.running import schedule_of, script_of

    check_target(out)
    if host is not None and format == "json":
        raise DocumentError.of("--host", "goes with --format sh: the JSON has all hosts", value=host)
    schedule = schedule_of(read_plan(plan), first_port=port, arguments=argument or ())
    if format == "json":
        content = json_bytes(schedule.model_dump(mode="json", by_alias=True))
    else:
        content = script_of(schedule, host=host).encode()
    for warning in schedule.warnings:
        say(f"warning: {warning}")
    write_or_print(content, out)
