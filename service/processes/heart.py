"""Signs of life, which a process gives for as long as it does its work, to whoever replaces it where they end.

In a family that is the parent, by the link to it. Alone it is systemd, where its unit has `WatchdogSec`
(https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html), and a thread of its own, which ends it: what
starts containers and services again when they end does not do so when they hang.
"""

import asyncio
import faulthandler
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sutler.service.settings import notify_socket

logger = logging.getLogger("sutler.serve")

BEAT_S: Final = 2.0
TOLD_S: Final = 5.0  # in which a log takes what it is told, unless it hangs as well
SILENT_S: Final = 20.0  # chosen: ten signs of life; a busy machine delays some
HUNG: Final = 70  # "internal software error" of sysexits.h
Tell = Callable[[], None]


def to_parent(link: socket.socket) -> Tell:
    """Tells the parent; one that does not listen keeps nobody waiting."""

    def tell() -> None:
        with suppress(OSError):
            link.send(b".", socket.MSG_DONTWAIT)

    return tell


def to_systemd() -> Tell:
    """Tells systemd, if it wants to know."""
    address = notify_socket()

    def tell() -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.sendto(b"WATCHDOG=1", socket.MSG_DONTWAIT, address)

    return tell if address else lambda: None


_is_ending: Final = threading.Event()


def ending() -> None:
    """From now on silence is no sign of a hang: this process is told to end, and gives no more signs of life."""
    _is_ending.set()


def alone(*, silent_s: float = SILENT_S) -> Tell:
    """Tells systemd; and ends this process, with all its stacks on stderr, `silent_s` after its last sign of life.

    Code in C that keeps the interpreter to itself keeps this from it, too.
    """
    told, told_at = to_systemd(), [0.0]

    def tell() -> None:
        is_first, told_at[0] = not told_at[0], time.monotonic()
        told()
        if is_first:
            threading.Thread(target=watch, daemon=True, name="watch").start()

    def watch() -> None:
        """Its own sleep tells when the whole process was stopped: then nobody was silent."""
        watched_s = 0.0
        while watched_s < silent_s:
            if _is_ending.is_set():
                return
            before, last = time.monotonic(), told_at[0]
            time.sleep(BEAT_S / 2)
            slept_s = time.monotonic() - before
            watched_s = 0.0 if told_at[0] > last else watched_s + min(slept_s, BEAT_S)
        telling = threading.Thread(target=say_why, daemon=True)
        telling.start()
        telling.join(TOLD_S)
        os._exit(HUNG)

    def say_why() -> None:
        faulthandler.dump_traceback(sys.__stderr__ or 2)
        logger.critical("no sign of life for %.0f s: this process hangs, and is ended", silent_s)

    return tell


async def beat(tell: Tell) -> None:
    """Tells as long as the event loop turns."""
    while True:
        tell()
        await asyncio.sleep(BEAT_S)


def beat_beside(tell: Tell) -> None:
    """Tells as long as this process runs at all: for one without an event loop."""

    def beating() -> None:
        while True:
            tell()
            time.sleep(BEAT_S)

    threading.Thread(target=beating, daemon=True, name="heart").start()
