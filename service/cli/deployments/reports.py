"""What `sutler deployments` tells a service of the world, and what is known of it: rented machines and traffic."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sutler.service.cli.deployments.calls import INPUT, Name, all_items, at, calling, print_items, print_reply, read
from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.input import read_data
from sutler.service.cli.terminal.options import AsJson
from sutler.service.cli.terminal.output import write_json

if TYPE_CHECKING:
    from sutler.service.cli.terminal.client import Client


@guarded
def ack(
    name: Name,
    revision: Annotated[
        int | None, typer.Option(min=1, help="The plan that is carried out; refused if another one holds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say that the plan is carried out: what it rents is what is rented.

    Machines that were held already cost what they did, new ones what the plan says. Scripts name the revision that
    they have carried out. Exit status: 0, 2 bad input or another plan holds, 5 there is no plan yet, 1 no answer from
    the service.
    """
    from sutler.service.cli.views.deployments import acknowledged_view
    from sutler.service.deployments.holdings.schemas import HoldingsResource

    with calling() as client:
        reply = client.post(at(name, "holdings/ack"), None if revision is None else {"revision": revision})
    print_reply(reply, HoldingsResource, acknowledged_view, as_json=as_json)


@guarded
def holdings(
    name: Name,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help=f"All that is rented now: a list of holdings. {INPUT}")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is rented now, all of it, or without FILE show what was said last.

    What is lost by it, what the plan misses and what it does not know of is shown. Exit status: 0, 2 bad input, 1 no
    answer from the service.
    """
    from sutler.service.cli.views.deployments import holdings_view
    from sutler.service.deployments.holdings.schemas import HoldingsResource

    body = None if file is None else read_data(file, "FILE")
    with calling() as client:
        reply = client.get(at(name, "holdings")) if file is None else client.put(at(name, "holdings"), body)
    print_reply(reply, HoldingsResource, holdings_view, as_json=as_json)


@guarded
def observe(
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Observations, YAML or JSON; JSON lines; or a CSV as the Azure LLM traces; - reads stdin.",
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Whose traffic it is, where the file does not say; unset: the only model's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report traffic that was seen: observations, single requests, or a CSV of them.

    The CSV has the columns TIMESTAMP, ContextTokens and GeneratedTokens. The same sent again counts once.
    Exit status: 0, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.deployments.files import observations
    from sutler.service.cli.views.traffic import accepted_words
    from sutler.service.deployments.traffic.schemas import AcceptedResource

    with calling() as client:
        whose = model or _only_model(client, name)
        replies = [client.post(at(name, "observations"), body) for body in observations(file, whose)]
    if as_json:
        write_json([reply.data for reply in replies if reply.body])
    else:
        for line in accepted_words(name, [read(AcceptedResource, reply.body) for reply in replies]):
            typer.echo(line)


@guarded
def traffic(name: Name, as_json: AsJson = False) -> None:
    """Show the traffic of each model and workload as it is known, beside what the plan is for.

    Exit status: 0, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.views.traffic import traffic_view
    from sutler.service.deployments.traffic.schemas import TrafficResource

    with calling() as client:
        reply = client.get(at(name, "traffic"))
    print_reply(reply, TrafficResource, lambda found: traffic_view(found, datetime.now(UTC)), as_json=as_json)


@guarded
def feeds(
    name: Name,
    given: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help=f"Read the traffic from these feeds, and no others. {INPUT}"),
    ] = None,
    option: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The same.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show where the traffic is read from and how the last readings went; with FILE, say where.

    The file has `feeds: [{model, kind, urls}]`, or the list alone; an empty list reads none. Exit status: 0, 2 bad
    input, 1 no answer from the service.
    """
    from sutler.service.cli.views.traffic import feeds_view
    from sutler.service.deployments.traffic.feed_schema import FeedsResource

    file = given or option
    body: Any = None if file is None else read_data(file, "FILE")
    whole = {"feeds": body} if isinstance(body, list) else body
    with calling() as client:
        reply = client.get(at(name, "feeds")) if file is None else client.put(at(name, "feeds"), whole)
    print_reply(reply, FeedsResource, feeds_view, as_json=as_json)


@guarded
def rates(
    name: Name,
    forget: Annotated[bool, typer.Option("--forget", help="Forget it, as after a change of the engines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how fast the engines are beside the estimates, as their own metrics tell.

    Plans rest on it where the policy says `learn_rates: true`. Exit status: 0, 2 bad input, 1 no answer from the
    service.
    """
    from sutler.service.cli.views.traffic import rates_view
    from sutler.service.deployments.rates.schemas import RatesResource

    with calling() as client:
        if forget:
            client.delete(at(name, "rates"))
        reply = client.get(at(name, "rates"))
    print_reply(reply, RatesResource, rates_view, as_json=as_json)


@guarded
def decisions(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List what was decided about the plan, the newest first: new revisions, and changes that were not worth it.

    Exit status: 0, 2 bad input, 1 no answer from the service.
    """
    from sutler.service.cli.views.deployments import decisions_view
    from sutler.service.deployments.watch_schema import DecisionResource

    with calling() as client:
        found = all_items(client, at(name, "decisions"), most=limit)
    if found or as_json:
        print_items(found, DecisionResource, decisions_view, as_json=as_json)
    else:
        say(f"Nothing was decided about {name} yet: `sutler deployments show {name}` says what the last look found.")


def _only_model(client: "Client", name: str) -> str | None:
    """The name of the model of a deployment; None where it has several."""
    from sutler.service.deployments.schemas import DeploymentResource

    found = read(DeploymentResource, client.get(at(name)).body)
    models: list[dict[str, Any]] = found.problem["models"]
    return str(models[0]["name"]) if len(models) == 1 else None
