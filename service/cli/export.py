"""`sutler export`: a plan in, the text that runs it out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from typing import Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.input import read_plan
from sutler.service.cli.terminal.options import Arguments, Output, PlanFile
from sutler.service.cli.terminal.output import check_target, write_or_print


@guarded
def export(
    plan: PlanFile,
    format: Annotated[
        Literal["vllm", "compose", "kubernetes", "skypilot", "router", "nginx", "envoy"],
        typer.Option(
            "--format",
            "-f",
            help="What to start the replicas with; router, nginx, envoy: only where requests go.",
        ),
    ],
    out: Output = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the first server on every machine.")] = 8000,
    argument: Arguments = None,
) -> None:
    """Say how to run a plan: command lines, containers, manifests, tasks or the router's weights.

    Exit status: 0 exported (warnings on stderr), 2 bad input or a replica that cannot be started, 3 nothing to run.
    """
    from sutler.service.export import exported

    check_target(out)
    result = exported(read_plan(plan), format, port=port, arguments=argument or ())
    for warning in result.warnings:
        say(f"warning: {warning}")
    write_or_print(result.content.encode(), out)
