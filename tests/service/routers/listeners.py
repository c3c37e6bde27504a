"""Stand-ins for engines within the test: they answer whatever they are asked, as long as they are up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Listeners:
    """By name; `up` says which of them are well: the others answer with 503."""

    ports: dict[str, int] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"


@asynccontextmanager
async def listening(*names: str) -> AsyncIterator[Listeners]:
    found = Listeners(up={*names})
    servers: list[asyncio.Server] = []
    answering: set[asyncio.Task[None] | None] = set()
    for name in names:

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name) -> None:
            answering.add(asyncio.current_task())
            with suppress(asyncio.IncompleteReadError, ConnectionError):  # who asked has gone
                await reader.readuntil(b"\r\n\r\n")
                status = b"200 OK" if name in found.up else b"503 Service Unavailable"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        servers.append(server)
        found.ports[name] = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        for server in servers:
            server.close()
        await asyncio.gather(*filter(None, answering))
