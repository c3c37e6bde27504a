"""`sutler projects`: who shares a service unseen by the others. What is slow to import is imported in a command."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import show, write_json
from sutler.service.documents.errors import DocumentError

if TYPE_CHECKING:
    from sutler.service.auth.projects import RetentionKind

projects = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and hyphens.")]


def _limit(what: str) -> Any:
    return typer.Option(min=0, help=f"{what}; 0: without a limit.")


Requests = Annotated[int | None, _limit("Requests of its keys together, in each API process")]
Solves = Annotated[int | None, _limit("Plans that are made for it at once")]
Plans = Annotated[int | None, _limit("Plans of any kind that it may keep")]


@projects.command(short_help="Make a project.")
@guarded
def create(
    name: Name,
    most_requests_per_minute: Requests = None,
    most_solves_at_once: Solves = None,
    most_stored_plans: Plans = None,
    as_json: AsJson = False,
) -> None:
    """Make a project. Its first key: sutler keys create NAME --scope admin --project PROJECT."""
    from sutler.service.cli import keys_of_the_store

    limits = _given(most_requests_per_minute, most_solves_at_once, most_stored_plans)
    _say(keys_of_the_store.create_project(name, limits), as_json, f"Project {name} is made.")


@projects.command(short_help="Say how much of the service a project may use.")
@guarded
def limit(
    name: Name,
    most_requests_per_minute: Requests = None,
    most_solves_at_once: Solves = None,
    most_stored_plans: Plans = None,
    as_json: AsJson = False,
) -> None:
    """Say how much of the service a project may use; what is not given stays as it is."""
    from sutler.service.cli import keys_of_the_store

    limits = _given(most_requests_per_minute, most_solves_at_once, most_stored_plans)
    if not limits:
        raise DocumentError.of("LIMIT", "give at least one of the three: `sutler projects limit --help`")
    _say(keys_of_the_store.limit_project(name, limits), as_json, f"Project {name} is limited so from now on.")


def _kept(what: str) -> Any:
    return typer.Option(metavar="TIME", help=f"{what}: 90d, 2y; 0: as by default.")


@projects.command(short_help="Say how long what a project has is kept.")
@guarded
def retention(
    name: Name,
    plans: Annotated[str | None, _kept("Plans of any kind; by default for ever")] = None,
    jobs: Annotated[str | None, _kept("Plans that failed or were cancelled; by default for ever")] = None,
    decisions: Annotated[str | None, _kept("Decisions; by default 90d, of revisions for ever")] = None,
    observations: Annotated[str | None, _kept("Observed traffic, 8d or more; by default 8d")] = None,
    audit: Annotated[str | None, _kept("The audit log; by default for ever")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how long what a project has is kept; what is not given stays as it is.

    What is older is deleted by the workers, unless something refers to it: plans that deployments stand on or that
    simulations are of stay.
    """
    from sutler.service.auth.projects import length_of
    from sutler.service.cli import keys_of_the_store

    given: dict[RetentionKind, str | None] = {
        **{"plans": plans, "jobs": jobs, "decisions": decisions},
        **{"observations": observations, "audit": audit},
    }
    kept = {kind: length_of(kind, told, field=f"--{kind}") for kind, told in given.items() if told is not None}
    if not kept:
        raise DocumentError.of("TIME", "give at least one of the five: `sutler projects retention --help`")
    _say(keys_of_the_store.keep_of_project(name, kept), as_json, f"Project {name} keeps it so from now on.")


@projects.command("list", short_help="List the projects with their limits, and how long they keep what.")
@guarded
def list_projects(as_json: AsJson = False) -> None:
    """List the projects with their limits, and how long they keep what."""
    from sutler.service.auth.service import in_words
    from sutler.service.cli import keys_of_the_store
    from sutler.service.cli.views.layout import table_of

    found = keys_of_the_store.all_projects()
    if as_json:
        write_json([asdict(project) for project in found])
        return
    numbers = ("requests/min", "solves at once", "stored plans")
    table = table_of(texts=("name", "made"), numbers=numbers, notes=("kept",))
    for one in found:
        limits = (one.most_requests_per_minute, one.most_solves_at_once, one.most_stored_plans)
        told = ("no limit" if most is None else str(most) for most in limits)
        kept = ", ".join(f"{kind} {in_words(kept_s)}" for kind, kept_s in sorted(one.kept_s.items()))
        table.add_row(one.name, f"{one.created_at:%Y-%m-%d}", *told, kept or "as by default")
    show(table)


def _given(requests: int | None, solves: int | None, plans: int | None) -> dict[str, int | None]:
    given = {"most_requests_per_minute": requests, "most_solves_at_once": solves, "most_stored_plans": plans}
    return {name: most or None for name, most in given.items() if most is not None}


def _say(project: Any, as_json: bool, told: str) -> None:
    if as_json:
        write_json(asdict(project))
    else:
        typer.echo(told)
