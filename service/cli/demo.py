"""`sutler demo`: the whole way from clouds to a plan on this machine alone: no key, no account, no network, no cost.

The clouds are played in this process, as `sutler dev fake-cloud` plays them; every step is a command that can be
typed against real ones. The store is a private PostgreSQL in a temporary folder that goes with the demo.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, NoReturn

import typer

from sutler.service.cli.init import problem_text
from sutler.service.cli.terminal import interrupts
from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.settings import for_a_child

PROBLEM: Final = problem_text("llama-3.1-8b", [5.0, 1000.0, 300.0], [2.0, 0.05], 0.0, None)
# Whatever the shell is set up for: the demo touches no database and no service but its own.
NOBODYS: Final = dict.fromkeys(("SUTLER_DATABASE_URL", "SUTLER_PROVIDERS", "SUTLER_REQUIRE_KEY", "SUTLER_HOSTS"), "")
LOOK_S: Final = 1.0  # a Ctrl-C that comes just before a sleep begins is seen only when it ends
STEPS: Final = ("market poll", "market offers --gpu h100-sxm --limit 8", "plan problem.yaml")


@guarded
def demo(
    seed: Annotated[int, typer.Option(help="Another seed is another market.")] = 1,
    pages: Annotated[
        bool, typer.Option("--pages", help="A service with three deployments, for the browser.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="With --pages: where the service answers.")] = 8400,
) -> None:
    """Play the clouds, poll them into a store and plan on it: no key, no account, no cost. About ten seconds.

    With --pages a service does so until Ctrl-C, and its pages show it. Exit status: that of the step that fails,
    else 0.
    """
    from sutler.adapters.fake.market import Market
    from sutler.adapters.fake.server import FakeCloud
    from sutler.service.cli.dev import settings_of

    cloud = FakeCloud(Market(seed=seed))
    cloud.start()
    try:
        with tempfile.TemporaryDirectory(prefix="sutler-") as name:
            folder = Path(name)
            (folder / "problem.yaml").write_text(PROBLEM, encoding="utf-8")
            played = {**settings_of(cloud), **NOBODYS, "SUTLER_DATA_DIR": str(folder / "data")}
            say(f"Clouds are played at {cloud.base_url}; nothing is rented.")
            if pages:
                _show_pages(folder, played, port)
                return
            typer.echo(f"$ cat problem.yaml\n{PROBLEM}", nl=False)
            for step in STEPS:
                typer.echo(f"\n$ sutler {step}")
                sys.stdout.flush()
                command = [sys.executable, "-P", "-m", "sutler", *step.split()]
                done = subprocess.run(command, cwd=folder, env=for_a_child(**played), check=False)
                if done.returncode != 0:
                    raise typer.Exit(done.returncode)
    finally:
        cloud.close()
    say("\nNext: `sutler init` writes a problem of your own, `sutler market poll` with a key asks a real cloud.")


def _show_pages(folder: Path, played: dict[str, str], port: int) -> None:
    """Until Ctrl-C, which is how this is meant to end."""
    from sutler.service.cli.pages_demo import DEPLOYMENTS, playing

    signal.signal(signal.SIGTERM, _end)
    say(f"Starting a service, polling, planning {len(DEPLOYMENTS)} deployments: some 20 seconds ...")
    try:
        with playing(folder, {**played, "SUTLER_POLL_INTERVAL_S": "30"}, port=port) as url:
            say(f"Open {url}/ui in a browser. Ctrl-C ends it, and leaves nothing behind.")
            while True:
                time.sleep(LOOK_S)
    except TimeoutError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        interrupts.heed()
        say("stopped")


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the demo as Ctrl-C does, with all that it has started."""
    raise KeyboardInterrupt
