"""Remembers that Ctrl-C came: a compiled module that is being imported makes another error of KeyboardInterrupt."""

import signal
from types import FrameType
from typing import NoReturn

_came: list[int] = []


def watch() -> None:
    """From now on Ctrl-C is remembered, unless whoever started the process wants it to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def came() -> bool:
    return bool(_came)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    _came.append(number)
    raise KeyboardInterrupt
