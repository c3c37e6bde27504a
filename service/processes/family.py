"""All roles under one parent, in one process group: who dies is started again, and all end together.

The parent holds what must outlive its children: the listening socket and the private database. Each child's standard
input is a pipe from the parent: a byte says that the database is ready; where it ends, the parent is gone, and the
child ends too. The API, for which callers wait, starts first, and loads its modules while the database is being made.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final

logger = logging.getLogger("sutler.serve")

GRACE_S: Final = 40.0  # chosen: above what polls and requests under way may take to end
QUICK_DEATH_S: Final = 10.0  # chosen: well above a start; who lived longer starts anew without a wait
FIRST_WAIT_S: Final = 0.2  # chosen: a child that died by chance is back at once
LONGEST_WAIT_S: Final = 15.0  # chosen: what was mended outside is taken up soon, and starts cost little meanwhile


def run(
    roles: Sequence[str], listening: socket.socket, arguments: Sequence[str], *, opened: AbstractContextManager[None]
) -> None:
    """Runs the roles until SIGTERM or SIGINT. `opened` holds the database; what it raises ends all and is raised."""
    asyncio.run(_run(roles, listening, arguments, opened))


async def _run(
    roles: Sequence[str], listening: socket.socket, arguments: Sequence[str], opened: AbstractContextManager[None]
) -> None:
    stop, ready = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    first, *others = [_Child(role, listening, arguments, ready) for role in roles]
    keeping = [asyncio.ensure_future(first.keep(stop))]
    with ExitStack() as stack:
        try:
            await asyncio.to_thread(stack.enter_context, opened)
            ready.set()
            keeping += [asyncio.ensure_future(child.keep(stop)) for child in others]
            await stop.wait()
        finally:
            stop.set()
            await _end([first, *others], keeping)


async def _end(children: "Sequence[_Child]", keeping: Sequence["asyncio.Future[None]"]) -> None:
    logger.info("stopping")
    for child in children:
        child.tell_to_end()
    _, late = await asyncio.wait(keeping, timeout=GRACE_S)
    for child in children:
        child.kill()
    if late:
        await asyncio.wait(late)


class _Child:
    """One role's process, started again whenever it ends."""

    def __init__(self, role: str, listening: socket.socket, arguments: Sequence[str], ready: asyncio.Event) -> None:
        self._role, self._listening, self._arguments, self._ready = role, listening, arguments, ready
        self._process: Process | None = None

    async def keep(self, stop: asyncio.Event) -> None:
        loop, wait_s = asyncio.get_running_loop(), FIRST_WAIT_S
        while not stop.is_set():
            started = loop.time()
            self._process = await self._start()
            if stop.is_set():  # all were told while nobody knew this one yet
                self.tell_to_end()
            letting_go = asyncio.ensure_future(self._let_go(self._process))
            status = await self._process.wait()
            letting_go.cancel()
            if stop.is_set():
                return
            wait_s = FIRST_WAIT_S if loop.time() - started > QUICK_DEATH_S else min(2 * wait_s, LONGEST_WAIT_S)
            logger.error("the %s ended with status %d: starting it again in %.1f s", self._role, status, wait_s)
            await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=wait_s)

    async def _start(self) -> Process:
        number = self._listening.fileno()
        command = [sys.executable, "-P", "-m", "sutler", "serve", "--role", self._role, *self._arguments]
        command += ["--child", "--socket", str(number)] if self._role == "api" else ["--child"]
        pass_fds = (number,) if self._role == "api" else ()
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, pass_fds=pass_fds)

    async def _let_go(self, process: Process) -> None:
        await self._ready.wait()
        if process.stdin is not None and process.returncode is None:
            process.stdin.write(b"\n")

    def tell_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


def follow_parent() -> None:
    """Waits, in a child, until the database is ready; from then on, without a parent there is no reason to stay.

    Ctrl-C in a terminal is the parent's business.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not os.read(0, 1):
        sys.exit(0)
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
