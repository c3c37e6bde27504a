"""A connection to an address that was checked, and a deadline that holds for all that goes over it.

A socket's own time-out starts anew with every byte, so a receiver that drips can outlast any; here each wait gets no
more than what is left.
"""

import io
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sutler.service.outgoing.addresses import Address

CHUNK_BYTES: Final = 16_384  # chosen: as one TLS record; between two of them the deadline is looked at


class OverTimeError(TimeoutError):
    """The deadline has passed."""


class NoConnectionError(TimeoutError):
    """The address does not take a connection in time."""


class Deadline:
    """An instant that only comes closer."""

    def __init__(self, limit_s: float) -> None:
        self._at_s = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """The seconds that are left. Raises OverTimeError where nothing is."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise OverTimeError
        return left_s

    def shorten(self, limit_s: float) -> None:
        """Brings it to `limit_s` from now, if that is earlier."""
        self._at_s = min(self._at_s, time.monotonic() + limit_s)


class Wire(io.RawIOBase):
    """Stands in for the socket that `http.client` asks for. Whoever opened the socket closes it."""

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self._socket = opened
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(Wire(self._socket, self._deadline))

    def sendall(self, content: bytes) -> None:
        for start in range(0, len(content), CHUNK_BYTES):
            self._socket.settimeout(self._deadline.left_s)
            self._socket.sendall(content[start : start + CHUNK_BYTES])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(self._deadline.left_s)
        return self._socket.recv_into(buffer)


@contextmanager
def connected(
    addresses: Sequence[Address], port: int, *, limit_s: float, deadline: Deadline
) -> Iterator[socket.socket]:
    """A connection to the first address that takes one; each gets `limit_s` at most. Raises OSError."""
    opened = _first_to_answer(addresses, port, limit_s=limit_s, deadline=deadline)
    with opened:
        yield opened


@contextmanager
def secured(
    opened: socket.socket, host: str, *, context: ssl.SSLContext, deadline: Deadline
) -> Iterator[ssl.SSLSocket]:
    """The connection under TLS, the certificate verified for `host`. Raises OSError (ssl.SSLError)."""
    opened.settimeout(deadline.left_s)
    with context.wrap_socket(opened, server_hostname=host) as secure:
        yield secure


def _first_to_answer(addresses: Sequence[Address], port: int, *, limit_s: float, deadline: Deadline) -> socket.socket:
    for position, address in enumerate(addresses):
        try:
            return _open(address, port, limit_s=min(limit_s, deadline.left_s))
        except OSError:
            if position == len(addresses) - 1:
                raise
    raise ValueError("there must be an address")


def _open(address: Address, port: int, *, limit_s: float) -> socket.socket:
    opened = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        opened.settimeout(limit_s)
        opened.connect((str(address), port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except TimeoutError:
        opened.close()
        raise NoConnectionError from None
    except BaseException:
        opened.close()
        raise
    return opened
