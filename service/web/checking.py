"""Checks large bodies in processes of their own: reading them holds the interpreter, and may take any memory.

A process has so many seconds and bytes for a body, and is ended where that is not enough, or where nobody waits any
more. What comes back is the checked document, or what is wrong in it.
"""

import asyncio
import os
import socket
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from sutler.service.answering import AnsweringProcess, LateError, Message, NoAnswerError, NoProcessError, serve
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Document
from sutler.service.documents.reading import parse_document
from sutler.service.documents.validation import validate
from sutler.service.fork_server import ForkServer, Request
from sutler.service.web.caller import LOCAL
from sutler.service.web.errors import NotYetError, TooManyRequestsError

D = TypeVar("D", bound=Document)
MODULE: Final = "sutler.service.web.checking"
PROCESS: Final = Request("sutler bodies", f"{MODULE}:main", MODULE, {})
AT_ONCE: Final = 2  # chosen: a large body does not wait for another, and what all may take stays below a gigabyte
MOST_WAITING: Final = 4  # chosen: bodies of one caller at a time, the one that is read included
LIMIT_S: Final = 30.0  # chosen: the largest bodies that are accepted take ten on a busy machine
MOST_BYTES: Final = 350_000_000  # chosen: several times what the largest bodies that are accepted need
BUSY_S: Final = 5.0
NICENESS: Final = 5  # answers to others come first

Question = tuple[type[Document], bytes, bool]


def checked(kind: type[D], content: bytes, *, is_json: bool) -> D:
    """The document of a body. Raises DocumentError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentError.of("body", "is not UTF-8 text") from None
    if not text.strip():
        raise DocumentError.of("body", "is empty: send a document, see /docs")
    return validate(kind, parse_document(text, is_json=is_json, field="body", name="the request's body"))


class Checker:
    """Of one API process. What it needs is started with the first large body."""

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._free: asyncio.Queue[AnsweringProcess] = asyncio.Queue()
        for _ in range(AT_ONCE):
            self._free.put_nowait(AnsweringProcess(fork_server, PROCESS))
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    async def checked(self, kind: type[D], content: bytes, *, is_json: bool, actor: str) -> D:
        """The document of a body that `actor` sends, of whom one is checked at a time; cancelling ends that.

        Raises DocumentError, TooManyRequestsError, NotYetError. Who needs no key waits, however many do.
        """
        async with self._turn(actor):
            process = await self._free.get()
            try:
                found, said = await process.answer((kind, content, is_json), limit_s=LIMIT_S)
            except LateError:
                raise DocumentError.of("body", f"cannot be read within {LIMIT_S:g} s: {_SMALLER}") from None
            except NoProcessError:
                raise NotYetError(
                    "there is no process to read the body now: ask again", retry_after_s=BUSY_S
                ) from None
            except NoAnswerError:
                remedy = f"needs too much memory to be read, or to tell what is wrong: {_SMALLER}"
                raise DocumentError.of("body", remedy) from None
            finally:
                self._free.put_nowait(process)
        if found == "wrong":
            raise DocumentError(said)
        if found == "defect":
            raise RuntimeError(said)
        document: D = said
        return document

    @asynccontextmanager
    async def _turn(self, actor: str) -> AsyncIterator[None]:
        if actor != LOCAL.actor and self._waiting[actor] >= MOST_WAITING:
            message = f"{MOST_WAITING} large bodies of this caller are being read: send one after the other"
            raise TooManyRequestsError(message, retry_after_s=BUSY_S)
        self._waiting[actor] += 1
        turn = self._turns.setdefault(actor, asyncio.Lock())
        try:
            async with turn:
                yield
        finally:
            self._waiting[actor] -= 1
            if not self._waiting[actor]:
                del self._waiting[actor], self._turns[actor]

    async def stop(self) -> None:
        """Ends the processes."""
        while not self._free.empty():
            await self._free.get_nowait().stop()
        await self._fork_server.stop()


_SMALLER: Final = "send less, and large markets as JSON"


def main(link: socket.socket) -> None:
    """The process. What a library prints when it runs out of memory is told by its end."""
    os.nice(NICENESS)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    serve(link, _answered, most_bytes=MOST_BYTES)


def _answered(question: Question, _tell: Callable[[Any], None]) -> Message:
    kind, content, is_json = question
    try:
        return "document", checked(kind, content, is_json=is_json)
    except DocumentError as error:
        return "wrong", error.problems
    except MemoryError:
        raise  # no defect: `serve` tells of it
    except Exception:
        return "defect", traceback.format_exc()
