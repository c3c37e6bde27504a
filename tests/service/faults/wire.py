"""A wire to a private PostgreSQL that can be cut at a chosen moment: TCP here, the server's own socket there.

    with Wire(server) as wire:
        ...                              # connect to wire.url("postgres")
        wire.cut_at(b"INSERT INTO plan")             # the next time this is sent, the server never gets it
        wire.cut_after(b"INSERT INTO plan")          # the server commits it, and nobody hears that it did
        wire.cut_at(b"INSERT INTO plan", kill)       # `kill` is called at that moment
        wire.silence("sutler notices")               # nothing comes through any more, and nobody is told

Statements are told by regular expressions. What is sent is read as
https://www.postgresql.org/docs/current/protocol-message-formats.html has it.
"""

import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from sqlalchemy import make_url

from tests.postgres import Server

COMMIT: Final = b"COMMIT"
_CHUNK: Final = 65_536


@dataclass(frozen=True, eq=False)
class _Cut:
    """To be made once: where, and what is done with it."""

    pattern: re.Pattern[bytes]
    do: Callable[[], object]
    is_pause: bool = False

    def fits(self, statement: bytes) -> bool:
        return self.pattern.search(statement) is not None


def _nothing() -> None:
    """A cut alone."""


@dataclass(eq=False)
class _Line:
    """One connection: the process's end, the server's end, and what has run in its transaction."""

    near: socket.socket
    far: socket.socket
    is_silent: bool = False
    is_deaf: bool = False  # answers are lost, and the end is near
    last_words: Callable[[], object] = _nothing
    startup: bytes = b""
    ran: list[bytes] = field(default_factory=list)
    _unread: bytes = b""
    _prepared: dict[bytes, bytes] = field(default_factory=dict)

    def close(self) -> None:
        for end in (self.near, self.far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def read(self, content: bytes) -> list[bytes]:
        """The statements that this content has the server run."""
        self._unread += content
        found = []
        while (message := self._message()) is not None:
            kind, body = message
            parts = body.split(b"\0", 2)
            if kind == b"P":
                self._prepared[parts[0]] = parts[1]
            if kind == b"Q":
                found.append(parts[0])
            if kind == b"B":
                found.append(self._prepared[parts[1]])
        return found

    def _message(self) -> tuple[bytes, bytes] | None:
        """Kind and body; the first one has no kind."""
        head = 1 if self.startup else 0
        if len(self._unread) < head + 4:
            return None
        end = head + int.from_bytes(self._unread[head : head + 4])
        if len(self._unread) < end:
            return None
        message, self._unread = self._unread[:end], self._unread[end:]
        self.startup = self.startup or message
        return message[:head], message[head + 4 :]


class Wire:
    """Listens from birth until the end of the `with` block."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lines: list[_Line] = []
        self._at: _Cut | None = None
        self._after: _Cut | None = None
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for line in self._lines:
            line.close()
        for thread in self._threads:
            thread.join()
        for line in self._lines:
            line.near.close()
            line.far.close()

    def url(self, database: str) -> str:
        port = self._listening.getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable&gssencmode=disable"

    def cut_at(self, statement: bytes, do: Callable[[], object] = _nothing) -> None:
        self._at = _Cut(re.compile(statement, re.DOTALL), do)

    def pause_at(self, statement: bytes, do: Callable[[], object]) -> None:
        """It passes once that is done."""
        self._at = _Cut(re.compile(statement, re.DOTALL), do, is_pause=True)

    def cut_after(self, statement: bytes, do: Callable[[], object] = _nothing) -> None:
        self._after = _Cut(re.compile(statement, re.DOTALL), do)

    @property
    def is_whole(self) -> bool:
        """Nothing is left that is to be cut."""
        return self._at is None and self._after is None

    def silence(self, *application_names: str) -> int:
        """The connections there are, of which it returns the number; new ones get through."""
        named = [b"application_name\0" + name.encode() + b"\0" for name in application_names]
        found = [line for line in self._lines if any(name in line.startup for name in named)]
        for line in found:
            line.is_silent = True
        return len(found)

    def mend(self) -> None:
        """Nothing is to be cut any more; what is silent stays so."""
        self._at = self._after = None

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            line = _Line(near, self._connected())
            self._lines.append(line)
            self._spawn(lambda line=line: self._pump(line, line.near, line.far, self._goes))  # type: ignore[misc]
            self._spawn(lambda line=line: self._pump(line, line.far, line.near, self._comes))  # type: ignore[misc]

    def _connected(self) -> socket.socket:
        folder = make_url(self._server.url()).query["host"]
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{folder}/.s.PGSQL.5432")
        return far

    def _pump(
        self, line: _Line, here: socket.socket, there: socket.socket, passes: Callable[[_Line, bytes], bool]
    ) -> None:
        with suppress(OSError):
            while content := here.recv(_CHUNK):
                if passes(line, content):
                    there.sendall(content)
        line.close()

    def _goes(self, line: _Line, content: bytes) -> bool:
        """To the server."""
        for statement in line.read(content):
            cut = self._at
            if cut is not None and cut.fits(statement):
                self._at = None
                cut.do()
                if not cut.is_pause:
                    line.close()
                    return False
            if statement != COMMIT:
                line.ran.append(statement)
            elif (after := self._after) is not None and any(map(after.fits, line.ran)):
                self._after, line.is_deaf, line.last_words = None, True, after.do
            if statement in {COMMIT, b"ROLLBACK"}:
                line.ran.clear()
        return not line.is_silent

    def _comes(self, line: _Line, _content: bytes) -> bool:
        """From the server."""
        if line.is_deaf:
            line.last_words()
            line.close()
        return not (line.is_deaf or line.is_silent)
