"""`sutler deployments`: standing problems of a running service and their plans, over HTTP.

SUTLER_URL says where the service is, SUTLER_KEY who asks. What is slow to import is imported when a command runs.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli import deployments_reports as reports
from sutler.service.cli.deployments_calls import INPUT, AsJson, Name, all_items, at, print_json, read, read_item
from sutler.service.cli.terminal.exits import Exit, guarded, say

if TYPE_CHECKING:
    from sutler.service.cli.terminal.client import Answer, Client
    from sutler.service.deployments.schemas import DeploymentResource
    from sutler.service.deployments.traffic.schemas import TrafficResource
    from sutler.service.documents.plan import PlanDocument

deployments = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@deployments.command(short_help="Make a deployment, or change it.")
@guarded
def apply(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=f"A deployment {{name, problem, policy}}, or a problem. {INPUT}")
    ],
    name: Annotated[str | None, typer.Option("--name", help="The deployment; wins over the file's name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a deployment, or change it: a changed problem calls for a new plan, the same again for nothing.

    Offers and traces that the problem names as files are read here and sent along. Feeds, if the file has any, are
    set too. Exit status: 0, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.deployments_files import wanted_deployment
    from sutler.service.cli.terminal.client import calling

    wanted = wanted_deployment(file, name)
    with calling() as client:
        answer = client.put(at(wanted.name), wanted.body)
        if wanted.feeds is not None:
            client.put(at(wanted.name, "feeds"), {"feeds": wanted.feeds})
    if as_json:
        print_json(answer)
    else:
        _say_applied(wanted.name, answer)


@deployments.command("list", short_help="List the deployments.")
@guarded
def list_deployments(as_json: AsJson = False) -> None:
    """List the deployments by name: the plan that holds, what it costs, and what the last look found."""
    from sutler.service.cli.terminal.client import calling
    from sutler.service.cli.terminal.output import show, write_json
    from sutler.service.cli.views.deployments import list_view
    from sutler.service.deployments.schemas import DeploymentSummary

    with calling() as client:
        found = all_items(client, "/v1/deployments")
    if as_json:
        write_json({"items": found, "next": None})
    elif found:
        show(*list_view([read_item(DeploymentSummary, item) for item in found], datetime.now(UTC)))
    else:
        say("There are no deployments: `sutler deployments apply FILE --name NAME` makes one.")


@deployments.command("show", short_help="Show a deployment: its plan, what is under way, what went wrong.")
@guarded
def show_deployment(name: Name, as_json: AsJson = False) -> None:
    """Show a deployment: which plan holds, whether it is carried out, what the last look found.

    Also which plan is being made, and why the last attempt came to nothing.
    """
    from sutler.service.cli.terminal.client import calling
    from sutler.service.cli.terminal.output import show
    from sutler.service.cli.views.deployments import deployment_view
    from sutler.service.deployments.schemas import DeploymentResource

    with calling() as client:
        answer = client.get(at(name))
        if as_json:
            print_json(answer)
            return
        deployment = read(DeploymentResource, answer)
        show(*deployment_view(deployment, _thin_traffic(client, deployment), datetime.now(UTC)))


@deployments.command("plan", short_help="Print the plan that holds, or an earlier one.")
@guarded
def show_plan(
    name: Name,
    revision: Annotated[int | None, typer.Option(min=1, help="This plan; unset: the one that holds.")] = None,
    wait_s: Annotated[float, typer.Option(min=0, max=60, help="Seconds to wait for the first plan.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Print the plan that holds, or an earlier one.

    Exit status: 0, 2 bad input, 3 it is infeasible, 5 there is none yet, 1 no answer from the service.
    """
    from sutler.service.cli.terminal.client import calling

    with calling() as client:
        if revision is None:
            answer = client.get(at(name, "plan"), wait_s=wait_s)
        else:
            answer = client.get(at(name, f"plans/{revision}"))
    _end_with_plan(answer, as_json=as_json)


@deployments.command(short_help="Say what to keep, start, re-route and stop, and why.")
@guarded
def diff(
    name: Name,
    since: Annotated[
        int | None,
        typer.Option("--from", min=0, help="Begin with this plan; 0: with nothing; unset: the one before."),
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", min=1, help="End with this plan; unset: the one that holds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what to keep, start, re-route and stop to have one plan where another was: in this order, priced, and why.

    Exit status: 0, 2 bad input, 5 there is no plan yet, 1 no answer from the service.
    """
    from sutler.service.cli.terminal.client import calling
    from sutler.service.cli.terminal.output import show
    from sutler.service.cli.views.diff import diff_view
    from sutler.service.deployments.diff.schema import DiffDocument

    with calling() as client:
        answer = _diff_of(client, name, since=since, to=_revision(client, name) if to is None else to)
    if as_json:
        print_json(answer)
    else:
        show(*diff_view(read(DiffDocument, answer)))


@deployments.command(short_help="Plan anew, now.")
@guarded
def replan(
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the plan and print it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan anew, now; while a plan is being made, that one is it.

    Exit status: 0; with --wait also 3 infeasible, 4 no market data, 5 no plan in time; 2 bad input, 1 no answer from
    the service.
    """
    from sutler.service.cli.deployments_watch import finished
    from sutler.service.cli.terminal.client import calling
    from sutler.service.plans.resources import PlanJobResource

    with calling() as client:
        answer = client.post(at(name, "replan"))
        job = read(PlanJobResource, answer)
        if wait:
            answer = finished(client, job.url)
    if wait:
        _end_with_plan(answer, as_json=as_json)
    elif as_json:
        print_json(answer)
    else:
        typer.echo(f"{name}: plan {job.id} is {job.status}.")


@deployments.command(short_help="Print a line for every new plan, until interrupted.")
@guarded
def watch(
    name: Name,
    after: Annotated[
        int | None, typer.Option(min=0, help="Plans after this revision; unset: after the one that holds.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End after the next plan.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the diff of each, one JSON document a line.")
    ] = False,
) -> None:
    """Print a line for every new plan: when it came, what it costs, what it changes and why; until interrupted.

    Exit status: 0 with --once, 130 interrupted, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.deployments_watch import watched
    from sutler.service.cli.terminal.client import calling

    with calling() as client:
        for line in watched(client, name, after=after, as_json=as_json):
            typer.echo(line)
            if once:
                return


deployments.command(short_help="Say that the plan is carried out.")(reports.ack)
deployments.command(short_help="Say what is rented now, or show what was said last.")(reports.holdings)
deployments.command(short_help="Report traffic that was seen.")(reports.observe)
deployments.command(short_help="Show the traffic as it is known, beside the planned.")(reports.traffic)
deployments.command(short_help="Show where the traffic is read from, or say it.")(reports.feeds)
deployments.command(short_help="List what was decided about the plan, and why.")(reports.decisions)


@deployments.command(short_help="Delete a deployment.")
@guarded
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the deployment as it was.")] = False,
) -> None:
    """Delete a deployment, with its traffic, holdings and decisions. Its plans stay; nothing rented is given back.

    Exit status: 0, 2 bad input or not confirmed, 1 no answer from the service.
    """
    from sutler.service.cli.terminal.client import calling

    with calling() as client:
        answer = client.get(at(name))
        if not yes and not _confirmed(name):
            say(f"{name} is not deleted; --yes deletes without asking")
            raise typer.Exit(Exit.BAD_INPUT)
        client.delete(at(name))
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{name} is deleted. What is rented for it is still rented.")


def _confirmed(name: str) -> bool:
    """No answer, as from a script, is a no."""
    try:
        return typer.confirm(f"Delete {name}, with its traffic, holdings and decisions?", err=True)
    except typer.Abort:
        typer.echo(err=True)
        return False


def _diff_of(client: "Client", name: str, *, since: int | None, to: int) -> "Answer":
    given = {} if since is None else {"from": since}
    return client.get(at(name, f"plans/{to}/diff"), **given)


def _revision(client: "Client", name: str) -> int:
    """Of the plan that holds. Raises RefusedError without one."""
    from sutler.service.documents.plan import PlanDocument

    return read(PlanDocument, client.get(at(name, "plan"))).revision


def _thin_traffic(client: "Client", deployment: "DeploymentResource") -> "TrafficResource | None":
    """What is known of it, where that is too little to tell."""
    from sutler.service.deployments.traffic.schemas import TrafficResource

    if deployment.watch is None or deployment.watch.feed != "thin":
        return None
    return read(TrafficResource, client.get(at(deployment.name, "traffic")))


def _say_applied(name: str, answer: "Answer") -> None:
    from sutler.service.deployments.schemas import DeploymentResource

    found = read(DeploymentResource, answer)
    done = "made" if answer.status == 201 else f"is at version {found.version}"
    typer.echo(f"{name} {done}; {_what_follows(found)}")


def _what_follows(found: "DeploymentResource") -> str:
    name = found.name
    if found.plan is None:
        return f"its plan is being made: `sutler deployments plan {name} --wait-s 60` prints it."
    if found.pending:
        wait = f"`sutler deployments watch {name} --after {found.plan.revision} --once` waits for it"
        return f"its next plan is being made: {wait}, `sutler deployments plan {name}` prints it."
    return f"its plan stands until it is looked at again: `sutler deployments show {name}` says what was found."


def _end_with_plan(answer: "Answer", *, as_json: bool) -> None:
    """Raises typer.Exit."""
    from sutler.service.cli.terminal.output import show
    from sutler.service.cli.views.plan import plan_view
    from sutler.service.documents.plan import PlanDocument

    plan = read(PlanDocument, answer)
    if as_json:
        print_json(answer)
    else:
        show(*plan_view(plan, calls_replicas_by_id=True))
    raise typer.Exit(_status(plan))


def _status(plan: "PlanDocument") -> Exit:
    by_status = {"infeasible": Exit.INFEASIBLE, "unknown": Exit.NO_PLAN_IN_TIME}
    return by_status.get(plan.status, Exit.PLANNED)
