"""A process that has loaded the service's modules and forks the processes that need them.

`sutler serve` is several processes of the same modules, and loading those takes seconds and a hundred MiB each. The
fork server loads them once: what is asked of it next is there within milliseconds, and what no process changes is in
memory once. It has no threads, which would not be in its forks. multiprocessing has one too, which cannot be asked by
the processes that it forked, and loads everything before the first:
https://docs.python.org/3/library/multiprocessing.html#contexts-and-start-methods

Whoever asks for a process keeps one end of two sockets. The *control* leads to the fork server: it tells the
process's id and, at its end, its status, and takes signals for it. The *link* leads to the process itself.
"""

import asyncio
import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import sys
import traceback
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pkgutil import resolve_name
from typing import Any, Final, NoReturn, cast

from setproctitle import setproctitle

from sutler.service.settings import for_a_child

MODULE: Final = "sutler.service.fork_server"
MOST_BYTES, MOST_SOCKETS = 65_536, 4  # of a request; it names a function and few arguments
ANSWER_S: Final = 40.0  # chosen: in which a busy machine loads all modules several times
UNKNOWN_STATUS: Final = -1  # of a process whose fork server has died
OBJECTS_BEFORE_GARBAGE_IS_SOUGHT: Final = 5_000  # 700 by default: a tenth of a start was spent on it
LOADED_WHEN_USED: Final = ("scipy.linalg", "scipy.optimize", "scipy.special")  # by SciPy: once, not in every fork
NOT_YET: Final = (signal.SIGTERM,)  # the server ends with those that ask; to a fork it comes once that is one
NUMBER: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Request:
    """A process that is asked for.

    `title` shows in lists of processes. `entry` is called in it, as "package.module:function", with the link, the
    passed sockets and the arguments. `needs` is a module that is loaded before, for this process and all later ones.
    """

    title: str
    entry: str
    needs: str
    arguments: dict[str, Any] = field(repr=False)


class ForkServer:
    """The side that asks, in an event loop; the server starts with the first request, and again when it has died."""

    def __init__(self, asking: socket.socket | None = None) -> None:
        """`asking` comes from who has started the server and passed it on."""
        self._asking, self._is_ours = asking, asking is None
        self._process: Process | None = None
        self._starting = asyncio.Lock()

    async def asking(self) -> socket.socket:
        """What requests go through; passed to a process, that can ask as well."""
        async with self._starting:
            if self._is_ours and (self._process is None or self._process.returncode is not None):
                await self._start()
        assert self._asking is not None
        return self._asking

    async def _start(self) -> None:
        if self._asking is not None:
            self._asking.close()
        self._asking, asked = socket.socketpair()
        with asked:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", MODULE, str(asked.fileno())),
                stdin=DEVNULL,
                pass_fds=(asked.fileno(),),
                env=for_a_child(OPENBLAS_NUM_THREADS="1"),  # its threads would not be in the forks either
            )

    async def start(self, request: Request, sockets: Sequence[socket.socket] = ()) -> "ForkedProcess":
        """Returns when the process is there. Raises ConnectionError where the server has died, or hangs."""
        asking = await self.asking()
        link, far_link = socket.socketpair()
        try:
            with far_link:
                control = asked(asking, request, [far_link, *sockets])
            try:
                async with asyncio.timeout(ANSWER_S):
                    pid = await _number(control)
                reader, writer = await asyncio.open_unix_connection(sock=link)
            except BaseException:
                control.close()
                raise
        except TimeoutError:
            link.close()
            await self.kill()
            raise ConnectionError(f"the fork server has not answered for {ANSWER_S:g} s") from None
        except BaseException:
            link.close()
            raise
        return ForkedProcess(pid, reader, writer, control)

    async def answers(self, *, within_s: float) -> bool:
        """Whether the server, if there is one, does what it is asked; one that has died does, by its end."""
        if self._asking is None:
            return True
        with suppress(OSError), asked(self._asking, None, ()) as control:
            try:
                async with asyncio.timeout(within_s):
                    await _number(control)
            except TimeoutError:
                return False
        return True

    async def kill(self) -> None:
        """Ends the server, if it is ours, whatever it does: its processes end with it, and the next request makes
        another one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Ends the server, if it is ours, and its processes by their links."""
        if self._is_ours and self._asking is not None and self._process is not None:
            self._asking.close()
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()


class ForkedProcess:
    """A process and the link to it."""

    def __init__(self, pid: int, reader: StreamReader, writer: StreamWriter, control: socket.socket) -> None:
        self.pid, self.reader, self.writer = pid, reader, writer
        self._control = control
        self._ended = asyncio.ensure_future(self._end())

    async def _end(self) -> int:
        try:
            with self._control:
                return await _number(self._control)
        except ConnectionError:
            self.writer.write_eof()  # the process ends then by itself
            return UNKNOWN_STATUS

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    async def wait(self) -> int:
        """Its status as `subprocess` has it: -9 where signal 9 ended it. UNKNOWN_STATUS: the server is gone."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        """By the fork server: only a parent can be sure that the id is still that process's."""
        if not self.has_ended:
            self._control.send(bytes([number]))

    def close(self) -> None:
        """Lets go of the link."""
        self.writer.close()


def asked(asking: socket.socket, request: Request | None, sockets: Sequence[socket.socket]) -> socket.socket:
    """The control of what was asked for: a process, or (None) whether anybody is there."""
    control, far_control = socket.socketpair()
    try:
        with far_control:
            socket.send_fds(asking, [b"?"], [far_control.fileno()])
        socket.send_fds(control, [pickle.dumps(request)], [passed.fileno() for passed in sockets])
        control.setblocking(False)
    except BaseException:
        control.close()  # the server has died
        raise
    return control


async def _number(control: socket.socket) -> int:
    content = await asyncio.get_running_loop().sock_recv(control, NUMBER.size)
    if not content:
        raise ConnectionError("the fork server has died")
    return cast(int, NUMBER.unpack(content)[0])


class _Server:
    """The side that forks, until nobody is left who could ask."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked, self._selector = asked, selectors.DefaultSelector()
        self._controls: dict[int, socket.socket] = {}
        self._died, self._noting = socket.socketpair()
        self._noting.setblocking(False)
        signal.set_wakeup_fd(self._noting.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source, heed in ((asked, self._fork), (self._died, self._reap)):
            self._selector.register(source, selectors.EVENT_READ, heed)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _fork(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._asked, 1, 1)
        if not message:
            sys.exit(0)
        control = socket.socket(fileno=descriptors[0])
        content, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, MOST_SOCKETS)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        request = pickle.loads(content) if content else None  # else whoever asked has died meanwhile
        if request is not None:
            self._fork_as(request, control, sockets)
        else:
            _tell(control, 0)
            control.close()
        for passed in sockets:
            passed.close()

    def _fork_as(self, request: Request, control: socket.socket, sockets: Sequence[socket.socket]) -> None:
        if sys.platform != "darwin":  # whose frameworks do not survive a fork: there each process loads its own
            with suppress(Exception):  # the process finds out itself, and says so
                for module in (*LOADED_WHEN_USED, request.needs):
                    import_module(module)
        gc.freeze()  # a search for garbage writes to what is shared, which copies it
        pid = os.fork()
        if pid == 0:
            self._become(request, control, sockets)
        self._controls[pid] = control
        self._selector.register(control, selectors.EVENT_READ, partial(self._pass_on, pid))
        _tell(control, pid)

    def _pass_on(self, pid: int) -> None:
        control = self._controls[pid]
        numbers = b""
        with suppress(ConnectionError):  # who asked may have died before it read the id
            numbers = control.recv(64)
        if not numbers:  # who asked is gone, which the process sees by its link
            self._selector.unregister(control)
        for number in numbers:
            os.kill(pid, number)

    def _reap(self) -> None:
        self._died.recv(4_096)
        while self._controls:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            control = self._controls.pop(pid)
            if control in self._selector.get_map():
                self._selector.unregister(control)
            _tell(control, os.waitstatus_to_exitcode(status))
            control.close()

    def _become(self, request: Request, control: socket.socket, sockets: Sequence[socket.socket]) -> NoReturn:
        """In the fork: nothing of the server's is left."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NOT_YET)
        self._selector.close()
        for own in (self._asked, self._died, self._noting, control, *self._controls.values()):
            own.close()
        setproctitle(request.title)
        _leave(_status_of(request, sockets))


def _tell(control: socket.socket, number: int) -> None:
    with suppress(OSError):  # who asked has died
        control.sendall(NUMBER.pack(number))


def _status_of(request: Request, sockets: Sequence[socket.socket]) -> int:
    try:
        resolve_name(request.entry)(*sockets, **request.arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def main() -> None:
    """The server's process, whose only argument is the descriptor that requests come from."""
    gc.set_threshold(OBJECTS_BEFORE_GARBAGE_IS_SOUGHT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, NOT_YET)
    _Server(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
