"""The Typer application: registers the subcommands; each lives in its own module and is thin."""

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from sutler.service.cli.backup import backup, restore
from sutler.service.cli.calibrate import calibrate
from sutler.service.cli.catalog import catalog
from sutler.service.cli.compare import compare
from sutler.service.cli.db import db
from sutler.service.cli.demo import demo
from sutler.service.cli.deployments.app import deployments
from sutler.service.cli.dev import dev
from sutler.service.cli.estimate import estimate
from sutler.service.cli.export import export
from sutler.service.cli.init import init
from sutler.service.cli.keys import keys
from sutler.service.cli.market import market
from sutler.service.cli.measurements import profiles
from sutler.service.cli.offline.app import offline
from sutler.service.cli.plan import plan
from sutler.service.cli.projects import projects
from sutler.service.cli.router import router
from sutler.service.cli.schema import schema
from sutler.service.cli.serve import serve
from sutler.service.cli.simulate import simulate
from sutler.service.cli.time_layer import profile
from sutler.service.cli.trial import trial

app = typer.Typer(
    name="sutler",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(short_help="Play the clouds, poll and plan: no key, no cost.")(demo)
app.command(short_help="Ask four questions and write a problem.")(init)
app.command(short_help="Plan: what to rent, how to deploy, where to route.")(plan)
app.command(short_help="Compare the plan with those of every other strategy.")(compare)
app.command(short_help="Estimate what one configuration does, or a CSV of them.")(estimate)
app.command(short_help="Time one layer on the GPU at hand, to calibrate with.")(profile)
app.command(short_help="Fit the estimates to your own measurements.")(calibrate)
app.command(short_help="Benchmark a plan's running replicas, and say what that changes.")(trial)
app.command(short_help="Print the JSON Schema of a document.")(schema)
app.command(short_help="Replay a plan on a trace: latencies, goodput, load.")(simulate)
app.command(short_help="Say how to run a plan: vLLM, compose, Kubernetes, SkyPilot.")(export)
app.command(short_help="Answer over HTTP, poll the clouds, make plans.")(serve)
app.command(short_help="Write the whole store into a file, also while the service runs.")(backup)
app.command(short_help="Put a backup into an empty database.")(restore)
app.command(short_help="List the GPUs or the models that a problem can name.")(catalog)
app.add_typer(market, name="market", short_help="Poll clouds, list what is for rent now, then and over time.")
app.add_typer(offline, name="offline", short_help="Plan applications of several models over a pile of requests.")
app.add_typer(deployments, name="deployments", short_help="Keep plans up to date with a running service.")
app.add_typer(router, name="router", short_help="Keep a running router at a plan's weights.")
app.add_typer(profiles, name="profiles", short_help="Import, list and show your own measurements.")
app.add_typer(dev, name="dev", short_help="Try things without a cloud.")
app.add_typer(keys, name="keys", short_help="Say who may call the service.")
app.add_typer(projects, name="projects", short_help="Say who shares the service without seeing each other.")
app.add_typer(db, name="db", short_help="Make and maintain the store's tables.")


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        found = version("sutler")
    except PackageNotFoundError:  # run from a checkout that was never installed
        found = "(not installed)"
    typer.echo(f"sutler {found}")
    raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Plans which GPUs to rent, how to deploy LLMs on them and where to route each workload, with proof."""
