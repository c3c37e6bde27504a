"""Runs work in the background, so that Ctrl-C works while compiled code is busy; shows signs of life."""

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from sutler.service.cli.terminal.output import console_for

T = TypeVar("T")
QUIET_S = 0.5  # a solve that ends sooner would only make the display flicker
REDRAW_S = 0.1  # chosen: reads as steady, costs next to nothing
SPINNER_COLUMNS = 3  # of the spinner and the space behind it


def in_background(work: Callable[[], T], words: Callable[[float], str]) -> T:
    """What `work` returns; meanwhile what `words` says, given the seconds, is on stderr where that is a terminal.

    Raises what `work` raises, and KeyboardInterrupt on Ctrl-C at once; the work is then left to die with the process.
    """
    future: Future[T] = Future()
    worker = Thread(target=_run, args=(future, work), daemon=True, name="solve")
    worker.start()
    worker.join(QUIET_S)
    if worker.is_alive():
        _watch(worker, words, console_for("stderr"))
    return future.result()


def _run(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


def _watch(worker: Thread, words: Callable[[float], str], console: Console) -> None:
    if console.color_system is None:
        while worker.is_alive():
            worker.join(REDRAW_S)
        return
    started = time.monotonic() - QUIET_S
    with console.status(Text("solving")) as status:
        while worker.is_alive():
            worker.join(REDRAW_S)
            line = Text(words(time.monotonic() - started))
            line.truncate(console.width - SPINNER_COLUMNS, overflow="ellipsis")
            status.update(line)


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """A spinner whose words the caller changes; nothing where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    with console_for("stderr").status(Text(first)) as status:
        yield lambda words: status.update(Text(words))
