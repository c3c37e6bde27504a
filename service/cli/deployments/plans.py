"""`sutler deployments plan`, `diff`, `replan` and `watch`: the plans of a deployment, and what they change."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sutler.service.cli.deployments.calls import Name, at, calling, print_reply, read
from sutler.service.cli.terminal.exits import exit_of_plan, guarded
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import show, write_json

if TYPE_CHECKING:
    from sutler.service.client.replies import Reply


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
    with calling() as client:
        path, wait_s = ("plan", wait_s) if revision is None else (f"plans/{revision}", 0.0)
        reply = client.get(at(name, path), wait_s=wait_s)
    _end_with_plan(reply, as_json=as_json)


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
    from sutler.service.cli.views.diff import diff_view
    from sutler.service.deployments.diff.schema import DiffDocument
    from sutler.service.documents.plan import PlanDocument

    with calling() as client:
        if to is None:
            to = read(PlanDocument, client.get(at(name, "plan")).body).revision
        given: dict[str, Any] = {"from": since}
        reply = client.get(at(name, f"plans/{to}/diff"), **given)
    print_reply(reply, DiffDocument, diff_view, as_json=as_json)


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
    from sutler.service.cli.deployments.watching import finished
    from sutler.service.plans.resources import PlanJobResource

    with calling() as client:
        reply = client.post(at(name, "replan"))
        job = read(PlanJobResource, reply.body)
        if wait:
            reply = finished(client, job.url)
    if wait:
        _end_with_plan(reply, as_json=as_json)
    elif as_json:
        write_json(reply.data)
    else:
        typer.echo(f"{name}: plan {job.id} is {job.status}.")


@guarded
def wake(
    name: Name,
    model: Annotated[
        list[str] | None, typer.Option("--model", help="This model; again for others; unset: all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Serve models that sleep: their plan is made at once, and `watch` prints it.

    Exit status: 0, 2 bad input, or nothing may sleep, 1 no answer from the service.
    """
    from sutler.service.deployments.schemas import WokenResource

    with calling() as client:
        reply = client.post(at(name, "wake"), {"models": model} if model else {})
    if as_json:
        write_json(reply.data)
    else:
        typer.echo(f"{name}: {', '.join(read(WokenResource, reply.body).models)} to be served.")


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
    from sutler.service.cli.deployments.watching import watched

    with calling() as client:
        for line in watched(client, name, after=after, as_json=as_json):
            typer.echo(line)
            if once:
                return


def _end_with_plan(reply: "Reply", *, as_json: bool) -> None:
    """Prints the plan and ends as it calls for. Raises typer.Exit."""
    from sutler.service.cli.views.plan import plan_view
    from sutler.service.documents.plan import PlanDocument

    plan = read(PlanDocument, reply.body)
    if as_json:
        write_json(reply.data)
    else:
        show(*plan_view(plan, calls_replicas_by_id=True))
    raise typer.Exit(exit_of_plan(plan.status))
