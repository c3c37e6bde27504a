"""`sutler dev`: tools for people who have no keys, or who work on sutler."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from sutler.service.cli.terminal import interrupts
from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.output import show, write_stdout
from sutler.service.cli.views.layout import table_of

if TYPE_CHECKING:  # no other command should pay for this import
    from sutler.adapters.fake.server import FakeCloud

MADE_UP_KEY = "fake-key"
LOOK_S = 1.0  # a Ctrl-C that comes just before a sleep begins is seen only when it ends

dev = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Tools for trying out and developing sutler.")


@dev.command("fake-cloud", short_help="Play all clouds on one local port, with a living market or a folder.")
@guarded
def fake_cloud(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Local port to listen on; 0 takes any.")] = 8500,
    machines: Annotated[int, typer.Option(help="Machines over all clouds, 50 to 20000.")] = 300,
    seed: Annotated[int, typer.Option(help="Another seed is another market.")] = 1,
    speed: Annotated[float, typer.Option(help="Market seconds per second; 60 makes a minute of a second.")] = 1.0,
    fail: Annotated[
        list[str] | None,
        typer.Option(metavar="PROVIDER=KIND[:TIMES]", help="Fail in this way, always or the next TIMES requests."),
    ] = None,
    payloads: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Play back a folder with a manifest.json instead.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Which file of the folder answers for its provider.")
    ] = None,
    require_key: Annotated[bool, typer.Option("--require-key", help="Refuse requests without a key.")] = False,
    log: Annotated[bool, typer.Option("--log", help="One line per request on stderr, never a key.")] = False,
) -> None:
    """Answer as every cloud does, on one local port, until Ctrl-C. No key, no account, no cost."""
    from sutler.adapters.fake.errors import FakeSetupError
    from sutler.adapters.fake.market import Market
    from sutler.adapters.fake.replay import ReplayFolder
    from sutler.adapters.fake.schedule import parsed_failure
    from sutler.adapters.fake.server import FakeCloud

    try:
        cloud = FakeCloud(
            Market(seed=seed, machines=machines),
            speed=speed,
            port=port,
            require_key=require_key,
            replayed=None if payloads is None else ReplayFolder(payloads),
            log=say if log else None,
        )
        for name in file or ():
            cloud.select(name)
        for text in fail or ():
            provider, kind, times = parsed_failure(text)
            cloud.fail(provider, kind, times=times)
        cloud.start()
    except FakeSetupError as error:
        refuse(error)
    except OSError as error:
        refuse(f"--port: {port} cannot be used ({error.strerror}): choose another, or 0 for any that is free")
    _serve(cloud)


def _serve(cloud: "FakeCloud") -> None:
    """Says what is played and plays it until Ctrl-C, which is how this command is meant to end."""
    try:
        show(_served(cloud))
        next_steps = (
            "Paste these lines into another terminal, then:  sutler market poll",
            f"What is truly there:  curl {cloud.base_url}/_fake/state      Ctrl-C stops.",
        )
        lines = [f"export {name}={value}" for name, value in settings_of(cloud).items()]
        write_stdout("\n".join(["", *lines, "", *next_steps, ""]).encode())
        while True:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        interrupts.heed()
        say("stopped")
    finally:
        cloud.close()


def _served(cloud: "FakeCloud") -> Table:
    from sutler.adapters.fake.clouds import CLOUDS

    if cloud.replayed is not None:
        table = table_of(title=f"{cloud.base_url} plays back", texts=("file", "provider", "answers"))
        for entry in cloud.replayed.entries:
            table.add_row(entry.file, entry.provider, f"{entry.method} {entry.path}")
        return table
    title, figures = f"{cloud.base_url} plays", ("machines", "GPUs", "free now")
    table = table_of(title=title, texts=("cloud", "answers"), numbers=figures)
    for provider, counts in cloud.market.counts(cloud.now_s()).items():
        totals = (
            sum(getattr(count, name) for count in counts.values()) for name in ("machines", "gpus", "free_gpus")
        )
        paths = "\n".join(f"{method} {path}" for method, path in CLOUDS[provider].routes)
        table.add_row(CLOUDS[provider].title, paths, *map(str, totals))
    return table


def settings_of(cloud: "FakeCloud") -> dict[str, str]:
    """What makes sutler ask the fake in place of each cloud; keys are made up, and never leave this machine."""
    found = {}
    from sutler.adapters.fake.clouds import CLOUDS
    from sutler.adapters.registry import PROVIDERS

    played = set(CLOUDS) if cloud.replayed is None else {entry.provider for entry in cloud.replayed.entries}
    for name, provider in PROVIDERS.items():
        if name in played & set(CLOUDS):
            found[f"SUTLER_{name.upper()}_BASE_URL"] = cloud.base_url
            if provider.needs_key:
                found.update({f"SUTLER_{name.upper()}_{key.upper()}": MADE_UP_KEY for key in provider.secrets})
    return found
