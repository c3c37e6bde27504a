"""What the processes of test_fork_server.py do; this file imports little, because each fork server loads it."""

import asyncio
import socket
import sys

from sutler.service.fork_server import ForkServer, Request

PARENT_AND_SELF = "__import__('os').getppid(), __import__('os').getpid()"


def echo(link: socket.socket, *sockets: socket.socket) -> None:
    """Answers what comes, until there is nobody; beyond that over every socket that was passed."""
    while content := link.recv(1_024):
        for out in (link, *sockets):
            out.sendall(content)


def tell(link: socket.socket, expression: str) -> None:
    link.sendall(str(eval(expression)).encode())


def end_with(link: socket.socket, status: object) -> None:
    sys.exit(status)  # type: ignore[arg-type]


def fail(link: socket.socket) -> None:
    raise ValueError("as it has to")


def ask_further(link: socket.socket, asking: socket.socket) -> None:
    """Has the same server make another process, and says what that says."""

    async def answer() -> bytes:
        other = await ForkServer(asking).start(
            Request("a fork", f"{__name__}:tell", "json", {"expression": PARENT_AND_SELF})
        )
        return await other.reader.read()

    link.sendall(asyncio.run(answer()))
