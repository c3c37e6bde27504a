"""`sutler offline adjust`: a plan and what has been done of it in, a plan for the rest out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import OfflinePlanFile, also_writes, prints
from sutler.service.cli.terminal.output import check_target, deliver


@guarded
def adjust(
    plan: OfflinePlanFile,
    progress: Annotated[
        Path,
        typer.Option(metavar="FILE", help="What has been done, YAML or JSON (`sutler schema offline-progress`)."),
    ],
    as_json: Annotated[bool, prints("the new plan, as JSON (`sutler schema offline-plan`)")] = False,
    out: Annotated[Path | None, also_writes("the new plan")] = None,
) -> None:
    """Plan the rest of a running application anew: the speeds that were seen, and what a new plan saves.

    Exit status: 0 planned, 2 bad input, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.offline.reading import read_plan, read_progress
    from sutler.service.cli.views.offline.outcome import adjustment_view
    from sutler.service.offline.adjusting import adjusted

    check_target(out)
    document, report = read_plan(plan), read_progress(progress)
    made = in_background(
        lambda: adjusted(document, report, plan_id=uuid4(), created_at=datetime.now(UTC)),
        lambda seconds: f"{seconds:.1f} s · planning the rest of {document.application.name}",
    )
    deliver(made, adjustment_view(document, made), as_json=as_json, out=out)
