"""`sutler keys`: who may call the API. What is slow to import is imported when a command runs."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import show, write_json, write_stdout
from sutler.service.documents.errors import DocumentError
from sutler.service.settings import DEFAULT_PROJECT

if TYPE_CHECKING:
    from sutler.service.auth.repository import KeyRecord

keys = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
InProject = Annotated[str, typer.Option("--project", metavar="NAME", help="The project that the key is of.")]


@keys.command(short_help="Make a key and print it, once.")
@guarded
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What the key is for; lists and people know it by this.")
    ],
    scope: Annotated[
        Literal["read", "plan", "admin"],
        typer.Option(
            help="read: look; plan: also ask for plans and change deployments; admin: also webhooks, audit."
        ),
    ],
    expires_in: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid: 12h, 90d, 52w; unset: until revoked.")
    ] = None,
    project: InProject = DEFAULT_PROJECT,
    weight: Annotated[
        int,
        typer.Option(min=1, max=100, help="Plans of it that are made for each one of another key, while both wait."),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, alone, on standard output. It is shown only now: the store keeps a digest of it.

    KEY=$(sutler keys create ci --scope plan)
    """
    from sutler.service.auth.service import lifetime_of
    from sutler.service.cli import keys_of_the_store

    lifetime = None if expires_in is None else lifetime_of(expires_in, field="--expires-in")
    new = keys_of_the_store.create(name, scope, lifetime, project=project, weight=weight)
    if as_json:
        write_json({"key": new.made.text, **asdict(new.record)})
        return
    write_stdout(f"{new.made.text}\n".encode())
    expires_at = new.record.expires_at
    until = "valid until it is revoked" if expires_at is None else f"valid until {_time(expires_at)} UTC"
    say(f"Key {new.record.id} ({name}), scope {scope}, {until}. It is shown only now: keep it in a safe place.")


@keys.command("list", short_help="List the keys, without their secrets.")
@guarded
def list_keys(project: InProject = DEFAULT_PROJECT, as_json: AsJson = False) -> None:
    """List the keys of a project, without their secrets, also those that are revoked or expired."""
    from sutler.service.cli import keys_of_the_store
    from sutler.service.cli.views.layout import table_of

    found = keys_of_the_store.all_keys(project)
    if as_json:
        write_json([asdict(record) for record in found])
        return
    if not found:
        say("There are no keys: `sutler keys create NAME --scope plan` makes one.")
        return
    table = table_of(
        texts=("id", "name", "scope", "created", "last used (UTC)"), numbers=("weight",), notes=("valid",)
    )
    for record in found:
        used = "never" if record.last_used_at is None else _time(record.last_used_at)
        state = _state(record, datetime.now(UTC))
        table.add_row(
            record.id, record.name, record.scope, f"{record.created_at:%Y-%m-%d}", used, str(record.weight), state
        )
    show(table)


@keys.command(short_help="Refuse a key from now on.")
@guarded
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The 12 characters that `sutler keys list` shows.")],
    project: InProject = DEFAULT_PROJECT,
) -> None:
    """Refuse a key from now on, in every API process. A key that was revoked before stays so."""
    from sutler.service.auth.keys import is_key_id
    from sutler.service.cli import keys_of_the_store

    if not is_key_id(key_id):  # not repeated: it may be a whole key
        raise DocumentError.of("ID", "must be the 12 letters and digits that `sutler keys list` shows")
    outcome = keys_of_the_store.revoke(key_id, project)
    if outcome == "unknown":
        raise DocumentError.of("ID", "is no key's: `sutler keys list` shows all", value=key_id)
    typer.echo(f"Key {key_id} {'was revoked before' if outcome == 'was_revoked' else 'is revoked'}.")


def _state(record: "KeyRecord", now: datetime) -> str:
    if record.revoked_at is not None:
        return f"revoked {record.revoked_at:%Y-%m-%d}"
    if (end := record.expires_at) is None:
        return "until revoked"
    return f"expired {end:%Y-%m-%d}" if end <= now else f"until {_time(end)}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
