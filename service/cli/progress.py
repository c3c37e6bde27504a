"""Signs of life on stderr while a command waits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from service.cli.output import console_for


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner with `what` on a terminal; nothing where stderr is none."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    with console_for("stderr").status(what):
        yield
