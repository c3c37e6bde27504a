"""`sutler calibrate`: fits the estimates to the user's own measurements.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from pathlib import Path
from typing import Annotated

import typer

from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import AsJson, DescribedIn
from sutler.service.cli.terminal.output import check_target, show_or_json
from sutler.service.documents.writing import write_file


@guarded
def calibrate(
    name: Annotated[str | None, typer.Argument(help="What problems will call it; with --list: none.")] = None,
    engine: Annotated[str | None, typer.Option(help="Only runs of this engine.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Only runs of this version.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Only runs on this GPU.")] = None,
    model: Annotated[str | None, typer.Option(help="Only runs of this model.")] = None,
    precision: Annotated[str | None, typer.Option(help="Only runs with weights of this precision.")] = None,
    problem: DescribedIn = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it, for problems without a store.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, store nothing.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List what there is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fit the estimates to imported runs (`sutler profiles import`) and keep the result under a name.

    Three to five runs help already. Shows how far off the estimates were before and are after, and what to expect of
    runs that were not seen. Problems use it with `throughput: {calibration: NAME}`.
    """
    from sutler.service.cli.views.measurements import calibration_view, calibrations_view
    from sutler.service.documents.fields import document_json
    from sutler.service.library.problems import names_in
    from sutler.service.main import opened_profiles
    from sutler.service.profiles.service import run_filter

    if list_all == (name is not None):
        raise typer.BadParameter("give a NAME, or --list")
    check_target(out)
    names = names_in(problem)
    with opened_profiles(names) as service:
        if name is None:
            found = service.calibrations()
            records = [one.model_dump(mode="json", by_alias=True, exclude={"points"}) for one in found]
            show_or_json(calibrations_view(found), records, as_json=as_json)
            return
        wanted = run_filter(
            gpu=gpu, model=model, precision=precision, engine=engine, engine_version=engine_version, names=names
        )
        made = service.calibrate(name, wanted)
        if not dry_run:
            made = service.keep(made)
    if out is not None:
        write_file(out, document_json(made.document).encode())
    record = made.document.model_dump(mode="json", by_alias=True)
    show_or_json(calibration_view(made, is_stored=not dry_run), record, as_json=as_json)
