"""The Typer application of `sutler offline`: registers the commands."""

import typer

from sutler.service.cli.offline.adjust import adjust
from sutler.service.cli.offline.compare import compare
from sutler.service.cli.offline.plan import plan
from sutler.service.cli.offline.run_plan import run_plan
from sutler.service.cli.offline.simulate import simulate

offline = typer.Typer(
    no_args_is_help=True,
    help="Plan applications of several models over a fixed pile of requests: what runs when, on which GPUs.",
)
offline.command(short_help="Plan: stages, GPUs and, on a market, what to rent.")(plan)
offline.command(short_help="Run a plan again with other lengths or slower models.")(simulate)
offline.command(short_help="Compare all strategies, their charts one above the other.")(compare)
offline.command(short_help="Plan the rest anew from what has been done so far.")(adjust)
offline.command("run-plan", short_help="Turn a plan into steps or a script that run it.")(run_plan)
