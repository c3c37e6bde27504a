"""Questions to a process of its own, which can be stopped at any moment and takes nobody with it when it dies.

What both sides say are pickled objects, each behind its length. Both ends are this program; nothing from outside is
ever unpickled. A process stays for the next question, and ends with who asks: when its link closes, even in the
middle of an answer. What libraries print in it goes to stderr. Where its memory is limited, what a question needs
beyond that ends the process and nobody else.
"""

import asyncio
import os
import pickle
import queue
import resource
import signal
import socket
import struct
import sys
import threading
from asyncio import StreamReader
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

from sutler.service.fork_server import ForkedProcess, ForkServer, Request

Message = tuple[str, Any]
"""What kind it is, and what it says."""

PROGRESS: Final = "progress"  # more is to come, as after
_OUT_OF_MEMORY: Final = 71  # as which a process ends that has none left; "operating system error" of sysexits.h
_MOST_OF_IT: Final = 0.7  # chosen: what was refused is not in the peak
# Libraries in C++ end so for want of memory, or for not asking whether they got it.
_FOR_WANT_OF_MEMORY: Final = (_OUT_OF_MEMORY, -signal.SIGABRT, -signal.SIGSEGV)
BEGUN: Final = "begun"  # with which every question is received; a message of any other kind is the answer
_LENGTH: Final = struct.Struct(">Q")


class NoAnswerError(Exception):
    """None will come: the process has died, or was stopped because it did not end in time."""


class LateError(NoAnswerError):
    """It was stopped because it did not end in time."""


class TooLargeError(NoAnswerError):
    """It needed more memory than it may have."""


class NoProcessError(NoAnswerError):
    """There is none that could be asked: the fork server has died."""


class AnsweringProcess:
    """Answers one question at a time. `request`: a process whose entry is a function that calls `serve`."""

    def __init__(self, fork_server: ForkServer, request: Request) -> None:
        self._fork_server, self._request = fork_server, request
        self._process: ForkedProcess | None = None
        self._is_busy = self._has_spoken = False

    async def start(self) -> ForkedProcess:
        """Makes the process ready, if it is not. Raises ConnectionError where the fork server has died."""
        if self._process is None or self._process.has_ended:
            await self.stop()
            self._process = await self._fork_server.start(self._request)
        return self._process

    async def answer(
        self, question: object, *, limit_s: float, on_progress: Callable[[Any], None] = lambda _: None
    ) -> Message:
        """The answer. Cancelling stops the process, as does the limit. Raises NoAnswerError."""
        try:
            await self._ready()  # for which the question does not have to pay
            async with asyncio.timeout(limit_s):
                return await self._answer(question, on_progress)
        except TimeoutError:
            raise LateError(f"it did not end within {limit_s:.0f} s and was stopped") from None
        finally:
            if self._is_busy:
                await self.stop()

    async def _answer(self, question: object, on_progress: Callable[[Any], None]) -> Message:
        """A process that has died since its last answer says nothing, and is replaced."""
        try:
            return await self._asked(question, on_progress)
        except NoAnswerError:
            if self._has_spoken:
                raise
        return await self._asked(question, on_progress)

    async def _asked(self, question: object, on_progress: Callable[[Any], None]) -> Message:
        self._has_spoken = False
        process = await self._ready()
        self._is_busy = True
        try:
            process.writer.write(packed(question))
            await process.writer.drain()
            while True:
                kind, content = await receive(process.reader)
                self._has_spoken = True
                if kind == PROGRESS:
                    on_progress(content)
                elif kind != BEGUN:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            status = await process.wait()
            error = TooLargeError if status in _FOR_WANT_OF_MEMORY else NoAnswerError
            raise error(f"it ended with status {status}: out of memory?") from None
        self._is_busy = False
        return kind, content

    async def _ready(self) -> ForkedProcess:
        try:
            return await self.start()
        except ConnectionError as error:
            raise NoProcessError(f"there is no process: {error}") from None

    async def stop(self) -> None:
        """Ends the process, whatever it does."""
        process, self._process, self._is_busy = self._process, None, False
        if process is not None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            process.close()


def serve(
    link: socket.socket, answered: Callable[[Any, Callable[[Any], None]], Message], *, most_bytes: int | None = None
) -> None:
    """The process's side. `answered` gives the answer to a question, and may tell of progress meanwhile.

    `most_bytes`: of memory for all questions, beyond what the process has before the first; kept on Linux alone.
    """
    if most_bytes is not None and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + most_bytes,) * 2)
    os.dup2(2, 1)
    out = link.makefile("wb")
    questions: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(link.makefile("rb"), questions), daemon=True).start()
    while True:
        question = questions.get()
        _tell(out, (BEGUN, None))
        try:
            _tell(out, answered(question, lambda progress: _tell(out, (PROGRESS, progress))))
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)  # what was made until then may still be in memory


def is_short_of_memory() -> bool:
    """Whether this process has once used most of the memory that it may have."""
    limit, used = resource.getrlimit(resource.RLIMIT_DATA)[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return limit != resource.RLIM_INFINITY and used * 1024 > _MOST_OF_IT * limit


def _data_bytes() -> int:
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))


def _receive(stream: BinaryIO, questions: "queue.SimpleQueue[Any]") -> None:
    while True:
        try:
            questions.put(read(stream))
        except (EOFError, OSError):  # a link that ends with something unread is reset
            os._exit(0)  # nobody is left to tell
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)


def _tell(out: BinaryIO, message: Message) -> None:
    try:
        out.write(packed(message))
        out.flush()
    except ConnectionError:
        os._exit(0)


def packed(message: object) -> bytes:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def read(stream: BinaryIO) -> Any:
    """Reads the next message. Raises EOFError at the end of the stream."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    return pickle.loads(_exactly(stream, length))


async def receive(stream: StreamReader) -> Any:
    """Reads the next message. Raises asyncio.IncompleteReadError at the end of the stream."""
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    return pickle.loads(await stream.readexactly(length))


def _exactly(stream: BinaryIO, length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content
