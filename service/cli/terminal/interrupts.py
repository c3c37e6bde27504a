"""Ctrl-C ends a command whatever is under way: compiled modules lose a KeyboardInterrupt, or raise another error.

So it is remembered, and raised again for as long as nothing is on its way out because of it.
"""

import signal
import sys
from types import FrameType, TracebackType
from typing import Final, NoReturn

AGAIN_S: Final = 0.5  # chosen: nobody waits long, and nothing else is held up

_came: list[int] = []


def watch() -> None:
    """From now on Ctrl-C is remembered, unless whoever started the process wants it to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.excepthook = _show


def came() -> bool:
    return bool(_came)


def heed() -> None:
    """For who has caught it and goes on: it is not raised again."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    _came.append(number)
    _raise_again_later()
    raise KeyboardInterrupt


def _raise_again_later() -> None:
    signal.signal(signal.SIGALRM, _unless_on_its_way)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)


def _unless_on_its_way(number: int, _: FrameType | None) -> None:
    """What is tidied up because of an interrupt is left to end."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return
        error = error.__context__
    raise KeyboardInterrupt


def _show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Compiled modules print the KeyboardInterrupt that they lose."""
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, traceback)
