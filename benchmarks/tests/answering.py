"""A server on loopback that answers as a test says, for what measures services."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

ETAG: Final = '"one"'
BODY: Final = b'{"id": "one", "revision": 1}'


@dataclass
class Asked:
    """What reached the server: the heads of all requests as they arrived, and how many connections there were."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    connections: int = 0

    @property
    def targets(self) -> list[str]:
        return [_target(head) for head in self.heads]


@dataclass(frozen=True)
class Reply:
    """`content` None: nothing. `ends`: the connection is closed afterwards."""

    content: bytes | None
    after_s: float = 0.0
    ends: bool = False


Script = Callable[[int, str], Reply]


def an_answer(*, status: str = "200 OK", etag: str = ETAG, body: bytes = BODY) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nETag: {etag}\r\n\r\n"
    return head.encode() + body


RIGHT: Final = Reply(an_answer())


def one_by_one(*first: Reply, then: Reply = RIGHT) -> Script:
    """These to the first requests, in the order of their arrival, and `then` to all others."""
    replies: Sequence[Reply] = first
    return lambda number, _: replies[number] if number < len(replies) else then


@asynccontextmanager
async def answering(script: Script) -> AsyncIterator[Asked]:
    """`script` is asked for each request, with its number and its target."""
    asked = Asked()
    serving: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        asked.connections += 1
        try:
            await _serve(asked, script, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    asked.port = server.sockets[0].getsockname()[1]
    try:
        yield asked
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(asked: Asked, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.heads.append(head)
        reply = script(len(asked.heads) - 1, _target(head))
        await asyncio.sleep(reply.after_s)
        if reply.content is not None:
            writer.write(reply.content)
            await writer.drain()
        if reply.ends:
            return


def _target(head: str) -> str:
    return head.split(" ", 2)[1]
