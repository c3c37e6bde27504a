"""`sutler deployments apply`, `list`, `show` and `delete`: the standing problems themselves.

SUTLER_URL says where the service is, SUTLER_KEY who asks. What is slow to import is imported when a command runs.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli.deployments.calls import INPUT, Name, all_items, at, calling, print_items, read
from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import show, write_json
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from sutler.service.cli.terminal.client import Client
    from sutler.service.deployments.schemas import DeploymentResource
    from sutler.service.deployments.traffic.schemas import TrafficResource


@guarded
def apply(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME] FILE", help=f"The deployment, and {{name, problem, policy}} or a problem. {INPUT}"
        ),
    ],
    name: Annotated[str | None, typer.Option("--name", help="The deployment; wins over the file's name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a deployment, or change it: a changed problem calls for a new plan, the same again for nothing.

    Offers and traces that the problem names as files are read here and sent along. Feeds, if the file has any, are
    set too. Exit status: 0, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.deployments.files import wanted_deployment
    from sutler.service.deployments.schemas import DeploymentResource

    *named, file = words
    if len(named) > 1 or (named and name is not None):
        raise typer.BadParameter("give NAME FILE, or FILE and --name NAME")
    wanted = wanted_deployment(Path(file), named[0] if named else name)
    with calling() as client:
        reply = client.put(at(wanted.name), wanted.body)
        if wanted.feeds is not None:
            client.put(at(wanted.name, "feeds"), {"feeds": wanted.feeds})
    if as_json:
        write_json(reply.data)
    else:
        found = read(DeploymentResource, reply.body)
        done = "made" if reply.status == 201 else f"is at version {found.version}"
        typer.echo(f"{wanted.name} {done}; {_what_follows(found)}")


@guarded
def list_deployments(as_json: AsJson = False) -> None:
    """List the deployments by name: the plan that holds, what it costs, and what the last look found."""
    from sutler.service.cli.views.deployments import list_view
    from sutler.service.deployments.schemas import DeploymentSummary

    with calling() as client:
        found = all_items(client, "/v1/deployments")
    if found or as_json:
        print_items(found, DeploymentSummary, lambda items: list_view(items, datetime.now(UTC)), as_json=as_json)
    else:
        say("There are no deployments: `sutler deployments apply FILE --name NAME` makes one.")


@guarded
def show_deployment(name: Name, as_json: AsJson = False) -> None:
    """Show a deployment: which plan holds, whether it is carried out, what the last look found.

    Also which plan is being made, and why the last attempt came to nothing.
    """
    from sutler.service.cli.views.deployments import deployment_view
    from sutler.service.deployments.schemas import DeploymentResource

    with calling() as client:
        reply = client.get(at(name))
        if as_json:
            write_json(reply.data)
            return
        deployment = read(DeploymentResource, reply.body)
        show(*deployment_view(deployment, _thin_traffic(client, deployment), datetime.now(UTC)))


@guarded
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the deployment as it was.")] = False,
) -> None:
    """Delete a deployment, with its traffic, holdings and decisions. Its plans stay; nothing rented is given back.

    Exit status: 0, 2 bad input or not confirmed, 1 no answer from the service.
    """
    with calling() as client:
        reply = client.get(at(name))
        if not yes and not _confirmed(name):
            say(f"{name} is not deleted; --yes deletes without asking")
            raise typer.Exit(Exit.BAD_INPUT)
        client.delete(at(name))
    if as_json:
        write_json(reply.data)
    else:
        typer.echo(f"{name} is deleted. What is rented for it is still rented.")


def _confirmed(name: str) -> bool:
    """Whether the caller says yes; no answer, as from a script, is a no."""
    try:
        return typer.confirm(f"Delete {name}, with its traffic, holdings and decisions?", err=True)
    except typer.Abort:
        typer.echo(err=True)
        return False


def _thin_traffic(client: "Client", deployment: "DeploymentResource") -> "TrafficResource | None":
    """What is known of the traffic of a deployment, where that is too little to tell."""
    from sutler.service.deployments.traffic.schemas import TrafficResource

    if deployment.watch is None or deployment.watch.feed != "thin":
        return None
    return read(TrafficResource, client.get(at(deployment.name, "traffic")).body)


def _what_follows(found: "DeploymentResource") -> str:
    name = found.name
    if found.plan is None:
        return f"its plan is being made: `sutler deployments plan {name} --wait-s 60` prints it."
    if found.pending:
        wait = f"`sutler deployments watch {name} --after {found.plan.revision} --once` waits for it"
        return f"its next plan is being made: {wait}, `sutler deployments plan {name}` prints it."
    return f"its plan stands until it is looked at again: `sutler deployments show {name}` says what was found."
