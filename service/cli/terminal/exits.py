"""Exit statuses, and how every error becomes one: a short message on stderr, never a traceback.

SUTLER_DEBUG=1 shows the traceback of what is our fault.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, ParamSpec, TypeVar

import typer

from sutler.service.cli.terminal import interrupts
from sutler.service.errors import Exit

P = ParamSpec("P")
R = TypeVar("R")
MOST_MESSAGES = 20  # chosen: what a terminal shows at once


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """A command whose errors end the process with their status."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except Exception as error:
            if interrupts.came():
                raise typer.Exit(Exit.INTERRUPTED) from None
            _end(error)

    return run


def say(message: str) -> None:
    """One message on stderr, whose control characters are shown, not obeyed."""
    shown = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in message)
    typer.echo(shown, err=True)


def say_all(messages: Sequence[str], more: str) -> None:
    """The first messages on stderr, and how many there are besides, which is put into `more`."""
    for message in messages[:MOST_MESSAGES]:
        say(message)
    if len(messages) > MOST_MESSAGES:
        say(more.format(len(messages) - MOST_MESSAGES))


def refuse(reason: object, status: Exit = Exit.BAD_INPUT) -> NoReturn:
    """Ends the command with what is wrong, on stderr."""
    say(f"error: {reason}")
    raise typer.Exit(status)


def exit_of_plan(status: str) -> Exit:
    """What a command ends with that has made, or shows, a plan of this status."""
    return {"infeasible": Exit.INFEASIBLE, "unknown": Exit.NO_PLAN_IN_TIME}.get(status, Exit.PLANNED)


def _end(error: Exception) -> NoReturn:
    from sutler.service.errors import SutlerError
    from sutler.solver.errors import InvalidProblemError, ProfilingError

    if isinstance(error, SutlerError) and error.exit_status is not None:
        say_all(error.lines, "error: ... and {} more of this kind")
        raise typer.Exit(error.exit_status) from error
    if isinstance(error, InvalidProblemError | ProfilingError):
        refuse(error)
    _end_by_our_fault(error)


def _end_by_our_fault(error: Exception) -> NoReturn:
    from sutler.service.settings import settings_from

    if settings_from().debug:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    say(f"this is a defect of sutler: {summary} (set SUTLER_DEBUG=1 to see the traceback)")
    raise typer.Exit(Exit.OUR_FAULT) from error
