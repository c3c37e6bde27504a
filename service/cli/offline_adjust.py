"""`sutler offline adjust`: a plan and what has been done of it in, a plan for the rest out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from pathlib import Path
from typing import Annotated

import typer

from sutler.service.cli.terminal.exits import guarded


@guarded
def adjust(
    plan: Annotated[Path, typer.Argument(help="Plan file (`sutler offline plan --json`); - reads standard input.")],
    progress: Annotated[
        Path,
        typer.Option(metavar="FILE", help="What has been done, YAML or JSON (`sutler schema offline-progress`)."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the new plan, as JSON (`sutler schema offline-plan`).")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write the new plan to a JSON file.")
    ] = None,
) -> None:
    """Plan the rest of a running application anew: the speeds that were seen, and what a new plan saves.

    Exit status: 0 planned, 2 bad input, 130 interrupted, 1 our fault.
    """
    from datetime import UTC, datetime
    from uuid import uuid4

    from sutler.service.cli.offline_reading import read_plan, read_progress
    from sutler.service.cli.terminal.background import in_background
    from sutler.service.cli.terminal.output import check_target, show, write_file, write_stdout
    from sutler.service.cli.views.offline_outcome import adjustment_view
    from sutler.service.offline.adjusting import adjusted
    from sutler.service.offline.plan_issue import offline_plan_json

    if out is not None:
        check_target(out)
    document, report = read_plan(plan), read_progress(progress)
    made = in_background(
        lambda: adjusted(document, report, plan_id=uuid4(), created_at=datetime.now(UTC)),
        lambda seconds: f"{seconds:.1f} s · planning the rest of {document.application.name}",
    )
    content = offline_plan_json(made).encode()
    if out is not None:
        write_file(out, content)
    if as_json:
        write_stdout(content)
    else:
        show(*adjustment_view(document, made))
