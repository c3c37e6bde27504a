"""One keep-alive connection of HTTP/1.1, as bare as it can be: who measures must cost less than what is measured.

Answers have a Content-Length or no body; sutler's have. One request at a time, no pipelining.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

END_OF_HEAD: Final = b"\r\n\r\n"
WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, complete."""

    status: int
    etag: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """No answer came back, or none that can be read."""

    reason: str


Done = Callable[[Answer | Broken], None]


class Connection(asyncio.Protocol):
    """Calls back once for every request sent: with its answer, or with why there is none.

    Once that was Broken, the connection is of no more use.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._done: Done | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.is_open = transport, True

    def send(self, request: bytes, done: Done) -> None:
        """`done` is called later, never within this call."""
        assert self._done is None, "one request at a time"
        assert self._transport is not None, "not connected"
        self._done = done
        if not self.is_open:
            asyncio.get_running_loop().call_soon(self._break, "the connection was closed before the request")
            return
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            answer, used = _answer(self._received)
        except (ValueError, IndexError):
            self._break("not HTTP/1.1 with a Content-Length")
            return
        if answer is None:
            return
        del self._received[:used]
        if self._done is None or self._received:
            self._break("more was answered than asked")
            return
        done, self._done = self._done, None
        done(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._break("the connection was closed within an answer" if self._received else "the connection was closed")

    def close(self) -> None:
        """Closes the connection; nothing is called back any more."""
        self._done = None
        if self._transport is not None:
            self._transport.abort()

    def _break(self, reason: str) -> None:
        done, self._done = self._done, None
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        if done is not None:
            done(Broken(reason))


async def connect(host: str, port: int) -> Connection:
    """Raises OSError."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


def get(host: str, port: int, target: str, headers: Mapping[str, str]) -> bytes:
    """The bytes of a request, made once and sent many times."""
    given = {"Host": f"{host}:{port}", **headers}
    lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _answer(received: bytearray) -> tuple[Answer | None, int]:
    """The answer and how many bytes it takes; None while some are missing. Raises ValueError, IndexError."""
    end = received.find(END_OF_HEAD)
    if end < 0:
        return None, 0
    first, *others = received[:end].decode("latin-1").split("\r\n")
    protocol, status = first.split(" ", 2)[:2]
    if protocol != "HTTP/1.1":
        raise ValueError(protocol)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in others)}
    begin = end + len(END_OF_HEAD)
    length = 0 if int(status) in WITHOUT_BODY else int(headers.get("content-length", "none"))
    if len(received) < begin + length:
        return None, 0
    return Answer(int(status), headers.get("etag"), bytes(received[begin : begin + length])), begin + length
