"""`sutler backup` and `sutler restore`: the whole store in a file, and back."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli.terminal.background import telling
from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import check_target, rfc3339, show, write_json

if TYPE_CHECKING:
    from sutler.service.backup.file import Manifest


@guarded
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Written beside and renamed once it is whole.")],
    as_json: AsJson = False,
) -> None:
    """Write the whole store into a file, as of one instant, also while the service runs: plans, deployments, keys (as
    digests), webhooks with their secrets, the market's history, the queue. Only its owner can read the file.
    """
    from sutler.service.backup.store import back_up
    from sutler.service.main import opened_database
    from sutler.service.settings import store_settings

    check_target(file)
    settings = store_settings()
    if settings.database_url is None and not settings.has_private_database:
        refuse(f"there is no store in {settings.data_dir}: name it in SUTLER_DATA_DIR or SUTLER_DATABASE_URL")
    began_s = time.monotonic()
    with telling("opening the store") as tell, opened_database(upgrade=False) as engine:
        manifest = back_up(engine, file, tell)
    _show(file, manifest, manifest.tables_version, time.monotonic() - began_s, as_json=as_json)
    say(f"Written to {file}; `sutler restore` puts it into an empty database.")


@guarded
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `sutler backup` has written.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the rows that there are, and do so while roles are at work.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup into an empty database that nobody works on, and bring its tables to this sutler's version. All of
    it, or, where the file is not whole or anything else is wrong, nothing.
    """
    from sutler.service.backup.store import restore as put_back
    from sutler.service.main import opened_database

    began_s = time.monotonic()
    with telling("opening the store") as tell, opened_database(upgrade=False) as engine:
        done = put_back(engine, file, is_forced=force, tell=tell)
    _show(file, done.manifest, done.tables_version, time.monotonic() - began_s, as_json=as_json)
    say("Restored. Machines rented since then are not known to it: report what is held (docs/recovery.md).")


def _show(file: Path, manifest: "Manifest", version: str, seconds: float, *, as_json: bool) -> None:
    from sutler.service.cli.views.layout import table_of

    if as_json:
        told = {table.path: {"rows": table.rows, "bytes": table.bytes} for table in manifest.tables}
        of_file = {"file": str(file), "taken_at": rfc3339(manifest.taken_at), "tables_version": version}
        write_json({**of_file, "tables": told, "rows": manifest.rows, "bytes": manifest.bytes, "seconds": seconds})
        return
    table = table_of(texts=("table",), numbers=("rows", "bytes"))
    for one in manifest.tables:
        if one.rows:
            table.add_row(one.name, f"{one.rows:,}", f"{one.bytes:,}")
    table.add_row(f"all {len(manifest.tables)}", f"{manifest.rows:,}", f"{manifest.bytes:,}")
    show(table)
    size = file.stat().st_size
    taken = f"As of {manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    typer.echo(f"{taken}: {size:,} bytes in {seconds:.1f} s, tables at version {version}.")
