"""The entry point of the `sutler` command: imports almost nothing, so that Ctrl-C is caught from the first moment."""

import gc
import os
import sys
from typing import NoReturn

from sutler.service.cli.terminal import interrupts

INTERRUPTED = 130  # 128 + SIGINT, as shells count
_OBJECTS_BEFORE_GARBAGE_IS_SOUGHT = 5_000  # 700 by default: a tenth of a start was spent on it


def run() -> NoReturn:
    """Runs the command line and leaves with its status.

    The process ends without the interpreter tidying up: an interrupted solve would keep it waiting for compiled
    code, and after a plan it costs a tenth of a second.
    """
    interrupts.watch()
    gc.set_threshold(_OBJECTS_BEFORE_GARBAGE_IS_SOUGHT)
    try:
        from sutler.service.cli.app import app

        app()
        status = 0
    except KeyboardInterrupt:
        status = INTERRUPTED
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
        if status == 1 and interrupts.came():  # outside of a command typer calls it aborted
            status = INTERRUPTED
    _leave(status)


def _leave(status: int) -> NoReturn:
    interrupts.heed()  # however it ended: nothing interrupts what is still written
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # closed, or never there
            continue
    if status == INTERRUPTED and sys.stderr is not None:
        os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(status)
