"""Signs of life, which a process gives for as long as it does its work, to whoever replaces it where they end.

In a family that is the parent, by the link to it; alone it is systemd, where its unit has `WatchdogSec`
(https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html).
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sutler.service.settings import notify_socket

BEAT_S: Final = 2.0
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
