"""`sutler serve` from a process that has loaded the code once: a tenth of what starting Python anew costs.

What is under test goes through the same command with the same arguments, in a process of its own; also where it is a
copy of the code, which PYTHONPATH names. Tests of how sutler is started start it anew.
"""

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from setproctitle import setproctitle

from sutler.service.answering import packed, read
from sutler.service.fork_server import MODULE, NUMBER, Request, asked

ROOT: Final = Path(__file__).parents[2]
# With what a worker's solvers need; and all that a family does.
LOADED: Final = {"worker": "tests.service.loaded_worker", "all": "tests.service.loaded_family"}


class Fork:
    """As much of subprocess.Popen as tests use; only the fork server is its parent, and tells of its end."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        link, far_link = socket.socketpair()
        role = _role(arguments)
        needs = LOADED.get(role, f"sutler.service.processes.{role}")
        request = Request(" ".join(["sutler", *arguments]), f"{__name__}:become", needs, {})
        with far_link:
            self._control = asked(_fork_server(environment["PYTHONPATH"])[0], request, [far_link])
        self._control.setblocking(True)
        self.pid = self._told()
        with link:
            link.sendall(packed((list(arguments), dict(environment), str(folder), str(log))))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._control.setblocking(True)  # else its timeout would be waited for
            with suppress(BlockingIOError):
                self._ended(self._told(socket.MSG_DONTWAIT))
        return self.returncode

    def _told(self, how: int = socket.MSG_WAITALL) -> int:
        """What the fork server says of it: first its id, and at its end how it ended."""
        content = self._control.recv(NUMBER.size, how)
        assert content, "the fork server has died"
        number: int = NUMBER.unpack(content)[0]
        return number

    def wait(self, timeout: float | None = None) -> int:
        while self.returncode is None:
            self._control.settimeout(timeout)
            try:
                self._ended(self._told())
            except TimeoutError:
                raise subprocess.TimeoutExpired("sutler serve", timeout or 0.0) from None
        return self.returncode

    def _ended(self, status: int) -> None:
        self.returncode = status
        self._control.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _role(arguments: Sequence[str]) -> str:
    return arguments[arguments.index("--role") + 1] if "--role" in arguments else "all"


@cache
def _fork_server(pythonpath: str) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """What it is asked by, and the process. It ends with this one."""
    asking, far = socket.socketpair()
    with far:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(far.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(far.fileno(),),
            env={**os.environ, "PYTHONPATH": os.pathsep.join([pythonpath, str(ROOT)]), "OPENBLAS_NUM_THREADS": "1"},
        )
    atexit.register(_end, asking, process)
    return asking, process


def _end(asking: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """It ends as nobody is left who could ask."""
    asking.close()
    process.wait()


def become(link: socket.socket) -> None:
    """In the fork: as if it had been started so."""
    with link, link.makefile("rb") as stream:
        arguments, environment, folder, log = read(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    opened = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(opened, 2)
    os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _role(arguments) in LOADED:
        _fork_a_fork_server()
    from sutler.service.cli.app import app

    sys.argv = ["sutler", *arguments]
    app()


def _fork_a_fork_server() -> None:
    """For the worker or family that this process becomes: with all modules loaded; its own would load them anew."""
    from sutler.service import fork_server

    own, far = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        own.close()
        setproctitle(MODULE)
        sys.argv = [MODULE, str(far.fileno())]
        fork_server.main()
    far.close()
    anew = fork_server.ForkServer._start

    async def start(self: fork_server.ForkServer) -> None:
        """The one that is there; once that has died, another, as always."""
        fork_server.ForkServer._start = anew  # type: ignore[method-assign]
        self._asking, self._process = own, _Forked(pid)  # type: ignore[assignment]

    fork_server.ForkServer._start = start  # type: ignore[method-assign]


class _Forked:
    """As much of asyncio's Process as a family's parent uses, of a child that was there before the event loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        while self.returncode is None:
            await asyncio.sleep(0.01)
        return self.returncode
