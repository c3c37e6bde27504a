"""`sutler export`: a plan in, the text that runs it out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import Exit, guarded, say

if TYPE_CHECKING:
    from sutler.service.documents.plan import PlanDocument

STANDARD_INPUT = Path("-")


@guarded
def export(
    plan: Annotated[Path, typer.Argument(help="Plan file (`sutler plan --json`); - reads standard input.")],
    format: Annotated[
        Literal["vllm", "compose", "kubernetes", "skypilot", "router"],
        typer.Option("--format", "-f", help="What to start the replicas with; router: only the weights, as JSON."),
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file instead.")] = None,
) -> None:
    """Say how to run a plan: command lines, containers, manifests, tasks or the router's weights.

    Exit status: 0 exported (warnings on stderr), 2 bad input or a replica that cannot be started, 3 nothing to run.
    """
    from sutler.service.cli.terminal.output import check_target, write_file, write_stdout
    from sutler.service.export import NothingToRunError, exported

    if out is not None:
        check_target(out)
    try:
        result = exported(read_plan(plan), format)
    except NothingToRunError as error:
        say(f"error: {error}")
        raise typer.Exit(Exit.INFEASIBLE) from error
    for warning in result.warnings:
        say(f"warning: {warning}")
    content = result.content.encode()
    if out is None:
        write_stdout(content)
    else:
        write_file(out, content)


def read_plan(path: Path) -> "PlanDocument":
    """A plan file, or standard input. Raises DocumentError."""
    import json
    import sys

    from pydantic import ValidationError

    from sutler.service.documents.errors import DocumentError
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.reading import read_document, read_stream
    from sutler.service.documents.validation import field_problems

    is_piped = path == STANDARD_INPUT
    data = read_stream(sys.stdin.buffer, field="PLAN") if is_piped else read_document(path, field="PLAN")
    if not isinstance(data, dict):
        raise DocumentError.of("PLAN", "must hold a plan (`sutler plan PROBLEM --json`)", value=data)
    try:
        return PlanDocument.model_validate_json(json.dumps(data))  # as JSON: strict Python mode wants tuples
    except ValidationError as error:
        raise DocumentError(field_problems(PlanDocument, data, error)) from None
