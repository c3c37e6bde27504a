"""Commands as bash reads them: every word of the plan quoted, every server in the background, one end for all."""

import shlex
from collections.abc import Iterable

from sutler.service.export.command import Reference, Word, describe_process, environment_of, serve_words, side_channel
from sutler.service.export.layout import Process, Serving


def shell_start(serving: Serving, process: Process, *, master: Word) -> list[str]:
    """Lines that start one process in the background, under a comment that says whose it is."""
    environment = {**environment_of(serving, process), **side_channel(serving, master)}
    assignments = [f"{name}={_quoted(value)}" for name, value in environment.items()]
    words = [_quoted(word) for word in serve_words(serving, process, master=master)]
    return [f"# {describe_process(serving, process)}", f"{' '.join([*assignments, *words])} &"]


def indented(lines: Iterable[str], blanks: int = 2) -> list[str]:
    """The lines, each further to the right."""
    return [f"{' ' * blanks}{line}" for line in lines]


ALL_OR_NONE = (
    "# When one server ends, the others are stopped, so that whatever watches this script sees the fault.",
    "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT",
    "trap 'exit 143' TERM",
    "trap 'exit 130' INT",
)
WAIT = "wait -n"


def _quoted(word: Word) -> str:
    return f'"{word.text}"' if isinstance(word, Reference) else shlex.quote(word)
