"""All roles under one parent, in one process group: who dies or hangs is started again, and all end together.

The parent holds what must outlive its children: the listening socket and the private database. A fork server makes
them. A byte on a child's link says that the database is ready; where the link ends, the parent is gone, and the child
ends too. The API, for which callers wait, starts first, and its modules are loaded while the database is being made.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final

from sutler.service.fork_server import ANSWER_S, UNKNOWN_STATUS, ForkedProcess, ForkServer, Request
from sutler.service.processes.heart import SILENT_S, beat, to_systemd

logger = logging.getLogger("sutler.serve")

GRACE_S: Final = 40.0  # chosen: above what polls and requests under way may take to end
QUICK_DEATH_S: Final = 10.0  # chosen: well above a start; who lived longer starts anew without a wait
PARDON_S: Final = 5.0  # chosen: where all were stopped (Ctrl-Z), each speaks again before that
FIRST_WAIT_S: Final = 0.2  # chosen: a child that died by chance is back at once
ASK_S: Final = 5.0  # chosen: that the fork server hangs, which keeps new processes waiting, is known in a minute
LONGEST_WAIT_S: Final = 15.0  # chosen: what was mended outside is taken up soon, and starts cost little meanwhile


def run(roles: Sequence[Request], listening: socket.socket, *, opened: AbstractContextManager[None]) -> None:
    """Runs the roles until SIGTERM or SIGINT. `opened` holds the database; what it raises ends all and is raised.

    Each role is passed the socket to listen on and one to ask the fork server for processes of its own.
    """
    asyncio.run(_run(roles, listening, opened))


async def _run(roles: Sequence[Request], listening: socket.socket, opened: AbstractContextManager[None]) -> None:
    stop, ready, fork_server = asyncio.Event(), asyncio.Event(), ForkServer()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    first, *others = [_Child(role, listening, fork_server, ready) for role in roles]
    keeping = [asyncio.ensure_future(first.keep(stop))]
    beside = [asyncio.ensure_future(beat(to_systemd())), asyncio.ensure_future(_watch_fork_server(fork_server))]
    with ExitStack() as stack:
        try:
            await asyncio.to_thread(stack.enter_context, opened)
            ready.set()
            keeping += [asyncio.ensure_future(child.keep(stop)) for child in others]
            await stop.wait()
        finally:
            stop.set()
            await _end([first, *others], keeping)
            await fork_server.stop()
            for task in beside:
                task.cancel()


async def _watch_fork_server(fork_server: ForkServer) -> None:
    """Ends one that hangs; all roles are started again then."""
    while True:
        await asyncio.sleep(ASK_S)
        if await fork_server.answers(within_s=ANSWER_S) or await fork_server.answers(within_s=PARDON_S):
            continue
        logger.error("the fork server hangs: it is ended")
        await fork_server.kill()


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

    def __init__(
        self, role: Request, listening: socket.socket, fork_server: ForkServer, ready: asyncio.Event
    ) -> None:
        self._role, self._listening, self._fork_server, self._ready = role, listening, fork_server, ready
        self._process: ForkedProcess | None = None

    async def keep(self, stop: asyncio.Event) -> None:
        loop, wait_s = asyncio.get_running_loop(), FIRST_WAIT_S
        while not stop.is_set():
            started = loop.time()
            ending = await self._ended(stop)
            if stop.is_set():
                return
            wait_s = FIRST_WAIT_S if loop.time() - started > QUICK_DEATH_S else min(2 * wait_s, LONGEST_WAIT_S)
            logger.error("%s %s: starting it again in %.1f s", self._role.title, ending, wait_s)
            await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=wait_s)

    async def _ended(self, stop: asyncio.Event) -> str:
        """Starts it, and returns how it ended."""
        try:
            asking = await self._fork_server.asking()
            self._process = process = await self._fork_server.start(self._role, [self._listening, asking])
        except ConnectionError as error:
            return f"could not start: {error}"
        if stop.is_set():  # all were told while nobody knew this one yet
            self.tell_to_end()
        beside = {asyncio.ensure_future(self._let_go(process)), asyncio.ensure_future(self._watch(process))}
        status = await process.wait()
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        while await self._said(process):
            pass  # until it has ended, of which a fork server that died did not tell
        process.close()
        return "ended with its fork server" if status == UNKNOWN_STATUS else f"ended with status {status}"

    async def _let_go(self, process: ForkedProcess) -> None:
        await self._ready.wait()
        process.writer.write(b"\n")

    async def _watch(self, process: ForkedProcess) -> None:
        """Ends a process that gives no sign of life any more, once it has given one."""
        speaks = await self._said(process)
        while speaks:
            try:
                async with asyncio.timeout(SILENT_S):
                    speaks = await self._said(process)
            except TimeoutError:
                await asyncio.sleep(PARDON_S)
                if not await self._speaks_now(process):
                    logger.error("%s hangs: it is ended", self._role.title)
                    process.send_signal(signal.SIGKILL)
                    return

    async def _speaks_now(self, process: ForkedProcess) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return bool(await self._said(process))
        return False

    @staticmethod
    async def _said(process: ForkedProcess) -> bytes:
        """Empty where it has ended; if it did so before it heard that the database is ready, its link is reset."""
        with suppress(ConnectionError):
            return await process.reader.read(64)
        return b""

    def tell_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def follow_parent(link: socket.socket) -> None:
    """Waits, in a child, until the database is ready; from then on, without a parent there is no reason to stay.

    Ctrl-C in a terminal is the parent's business.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not _heard(link):
        sys.exit(0)
    threading.Thread(target=_end_with_parent, args=[link], daemon=True, name="parent").start()


def _end_with_parent(link: socket.socket) -> None:
    while _heard(link):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _heard(link: socket.socket) -> bytes:
    """Empty where the parent is gone; a link that ends with a sign of life that nobody has read is reset."""
    with suppress(ConnectionError):
        return link.recv(1)
    return b""
