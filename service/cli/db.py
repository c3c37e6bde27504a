"""`sutler db`: the tables of the store."""

from typing import Annotated

import typer

from sutler.service.cli.terminal.background import telling
from sutler.service.cli.terminal.exits import guarded

db = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@db.command(short_help="Bring the tables to this sutler's version.")
@guarded
def upgrade() -> None:
    """Make the tables, or bring them to this sutler's version, while the version before serves on; does nothing where
    they are. Indexes are built last: broken off, it goes on where it was when it is run again.
    """
    from sutler.service.db.store import schema_version
    from sutler.service.db.upgrade import upgrade as bring_up
    from sutler.service.main import opened_database

    with telling("opening the store") as tell, opened_database(upgrade=False) as engine:
        before = schema_version(engine)
        bring_up(engine, tell=tell)
        after = schema_version(engine)
    typer.echo(f"The tables are at version {after}" + ("." if before == after else f" (before: {before or 'none'})."))


@db.command(short_help="Roll up and delete old history.")
@guarded
def prune(
    history_days: Annotated[
        float | None, typer.Option(min=1.0, help="Days to keep in full; unset: SUTLER_HISTORY_DAYS, or 90.")
    ] = None,
) -> None:
    """Roll history older than that up into hours, and delete it. What is for rent now is never touched."""
    from sutler.service.main import opened_market
    from sutler.service.settings import store_settings

    with opened_market() as market:
        done = market.prune(history_days or store_settings().history_days)
    until = f"{done.until:%Y-%m-%d %H:%M} UTC"
    typer.echo(f"Kept in full since {until}: {done.hours:,} hours rolled up, {done.rows_deleted:,} rows deleted.")


@db.command(short_help="Encrypt webhooks' secrets with the first key.")
@guarded
def encrypt_secrets() -> None:
    """Encrypt all webhooks' secrets with the first of SUTLER_SECRETS_KEYS, plain ones and those of others: all or
    none. Processes that have both keys go on meanwhile.
    """
    from sutler.service.cli import keys_of_the_store
    from sutler.service.wording.words import counted

    count, key_id = keys_of_the_store.encrypt_secrets()
    webhooks = counted(count, "webhook")
    typer.echo(f"The secrets of {webhooks} are encrypted with the key {key_id}: no other is needed any more.")
