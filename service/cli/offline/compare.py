"""`sutler offline compare`: an application in, what every strategy makes of it side by side out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import ApplicationFile, also_draws, prints
from sutler.service.cli.terminal.output import check_plot, deliver
from sutler.service.documents.writing import write_file

if TYPE_CHECKING:
    from sutler.service.offline.outcome_schema import OfflineComparisonDocument


@guarded
def compare(
    application: ApplicationFile,
    as_json: Annotated[bool, prints("JSON (`sutler schema offline-comparison`)")] = False,
    plot: Annotated[Path | None, also_draws("the charts, as .html or .png")] = None,
    seeds: Annotated[
        int, typer.Option(min=0, max=1000, help="Also run every schedule with so many other draws of the lengths.")
    ] = 0,
) -> None:
    """Plan an application with every strategy, on the same GPUs and lengths, and show their charts together.

    Exit status: 0 compared, 2 bad input, 4 no market data, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.offline.reading import read_translated
    from sutler.service.cli.views.offline.outcome import comparison_view
    from sutler.service.offline.planning import compared

    check_plot(plot, (".png", ".html"), plain=".html")
    translation, market = read_translated(application)
    found = in_background(
        lambda: compared(translation, market=market, created_at=datetime.now(UTC), seeds=seeds),
        lambda seconds: f"{seconds:.1f} s · comparing strategies on {translation.application.name}",
    )
    if plot is not None:
        write_file(plot, comparison_plot(found, plot))
    deliver(found, comparison_view(found), as_json=as_json)


def comparison_plot(found: "OfflineComparisonDocument", file: Path) -> bytes:
    """The content of a file with the charts one above the other."""
    from sutler.service.cli.views.offline.outcome import bound_words, charts_of, headings_of, verdict
    from sutler.service.offline.figures import Drawing, drawn

    notes = (f"{verdict(found)}. {bound_words(found)}",)
    return drawn(Drawing(found.application, notes, charts_of(found), headings_of(found)), file)
