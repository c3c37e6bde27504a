"""The Typer application of `sutler deployments`: registers the commands."""

import typer

from sutler.service.cli.deployments import plans, reports, standing

deployments = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
deployments.command(short_help="Make a deployment, or change it.")(standing.apply)
deployments.command("list", short_help="List the deployments.")(standing.list_deployments)
deployments.command("show", short_help="Show a deployment: its plan, what is under way, what went wrong.")(
    standing.show_deployment
)
deployments.command("plan", short_help="Print the plan that holds, or an earlier one.")(plans.show_plan)
deployments.command(short_help="Say what to keep, start, re-route and stop, and why.")(plans.diff)
deployments.command(short_help="Plan anew, now.")(plans.replan)
deployments.command(short_help="Serve models that sleep.")(plans.wake)
deployments.command(short_help="Print a line for every new plan, until interrupted.")(plans.watch)
deployments.command(short_help="Say that the plan is carried out.")(reports.ack)
deployments.command(short_help="Say what is rented now, or show what was said last.")(reports.holdings)
deployments.command(short_help="Report traffic that was seen.")(reports.observe)
deployments.command(short_help="Show the traffic as it is known, beside the planned.")(reports.traffic)
deployments.command(short_help="Show where the traffic is read from, or say it.")(reports.feeds)
deployments.command(short_help="Show what was learnt of the engines' rates, or forget it.")(reports.rates)
deployments.command(short_help="List what was decided about the plan, and why.")(reports.decisions)
deployments.command(short_help="Delete a deployment.")(standing.delete)
