"""`sutler router`: keeps a running router at a plan's weights.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.input import read_plan
from sutler.service.cli.terminal.output import check_target

router = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@router.callback()
def group() -> None:
    """Keep a running router at a plan's weights."""


@router.command(short_help="Write the weights whenever the plan or the health of its replicas changes.")
@guarded
def follow(
    addresses: Annotated[
        Path, typer.Option(metavar="FILE", help="Where replicas answer: their keys, host:port. Read when it changes.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The router's file, written whole.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The deployment.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A plan in place of a deployment's; addresses may be by replica id then."),
    ] = None,
    format: Annotated[
        Literal["nginx", "envoy", "router"], typer.Option("--format", "-f", help="As of `sutler export`.")
    ] = "nginx",
    listen: Annotated[str, typer.Option(metavar="[ADDRESS:]PORT", help="Where nginx is to listen.")] = "8080",
    check: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Fails if the file is no good; unset: nginx -t -q.")
    ] = None,
    reload: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="Has the router load it; unset: nginx -s reload.")
    ] = None,
    every_s: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between two requests for a replica's /health.")
    ] = 2.0,
    checks: Annotated[
        int, typer.Option(min=1, max=100, help="As many in a row make a replica dead, or alive again.")
    ] = 3,
) -> None:
    """Write the router's weights and have it load them: each revision, without replicas that do not answer; for ever.

    Exit status: 0 ended by SIGTERM, 130 interrupted, 2 bad input or the service refuses.
    """
    import asyncio

    from sutler.service.client.errors import RefusedError
    from sutler.service.routers.running import Wanted, follow_until_ended

    if (name is None) == (plan is None):
        refuse("give either NAME or --plan FILE")
    check_target(out)
    wanted = Wanted(
        name=name,
        plan=plan,
        read_plan=read_plan,
        addresses=addresses,
        out=out,
        format=format,
        listen=listen,
        check=check,
        reload=reload,
        every_s=every_s,
        checks=checks,
    )
    try:
        asyncio.run(follow_until_ended(wanted, say))
    except RefusedError as error:
        refuse(error)
