"""Signs of life on stderr while a command waits."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from sutler.service.cli.terminal.output import console_for


@contextmanager
def telling(first: str) -> Iterator[Callable[[str], None]]:
    """A spinner whose words the caller changes; nothing where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    with console_for("stderr").status(Text(first)) as status:
        yield lambda words: status.update(Text(words))
