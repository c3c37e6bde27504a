"""`sutler offline plan`: an application file in, its stages out, with a chart and a bound.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import exit_of_plan, guarded, say
from sutler.service.cli.terminal.options import ApplicationFile, also_draws, also_writes, prints
from sutler.service.cli.terminal.output import check_plot, check_target, deliver
from sutler.service.documents.writing import write_file

if TYPE_CHECKING:
    from sutler.service.offline.plan_schema import OfflinePlanDocument


@guarded
def plan(
    application: ApplicationFile,
    as_json: Annotated[bool, prints("the plan, as JSON (`sutler schema offline-plan`)")] = False,
    out: Annotated[Path | None, also_writes("the plan")] = None,
    plot: Annotated[Path | None, also_draws("it, as .html or .png")] = None,
    strategy: Annotated[
        Literal["sutler", "greedy", "max_heuristic", "min_heuristic"],
        typer.Option(help="Who plans: sutler, or one of those that it is compared with."),
    ] = "sutler",
) -> None:
    """Say which models of an application run when, on which GPUs, and how far that may be from the best.

    Exit status: 0 planned, 2 bad input, 3 infeasible (what must give is printed), 4 no market data, 130 interrupted,
    1 our fault.
    """
    from sutler.service.cli.offline.reading import read_translated
    from sutler.service.cli.views.offline.plan import plan_view
    from sutler.service.offline.planning import planned

    check_target(out)
    check_plot(plot, (".png", ".html"), plain=".html")
    translation, market = read_translated(application)
    made = in_background(
        lambda: planned(translation, market=market, plan_id=uuid4(), created_at=datetime.now(UTC), strategy=strategy),
        lambda seconds: f"{seconds:.1f} s · planning {translation.application.name}",
    )
    deliver(made, plan_view(made), as_json=as_json, out=out)
    if plot is not None and made.stages:
        write_file(plot, plan_plot(made, plot))
    elif plot is not None:
        say(f"{plot} is not written: a plan that is {made.status} has nothing to draw")
    raise typer.Exit(exit_of_plan(made.status))


def plan_plot(made: "OfflinePlanDocument", file: Path) -> bytes:
    """The content of a file with the plan's chart."""
    from sutler.service.cli.views.offline.headline import achievement, proof, setting
    from sutler.service.offline.figures import Drawing, drawn
    from sutler.service.offline.gantt import chart_of_plan

    notes = (f"{achievement(made)}. {proof(made)}", setting(made))
    return drawn(Drawing(made.application.name, notes, (chart_of_plan(made),)), file)
