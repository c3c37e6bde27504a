"""The end of a poll, whatever a server does: read time-outs start anew with every byte, so a drip can outlast them.

At the limit every connection of the session is shut down, which ends the read that waits on it with an error.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter

GRACE_S = 1.0  # the poll's own clock comes first: it names the reason


@contextmanager
def session_for(limit_s: float) -> Iterator[requests.Session]:
    """A session whose connections end `limit_s` from now, at the latest."""
    adapter = _WatchedAdapter()
    timer = threading.Timer(limit_s + GRACE_S, adapter.cut)
    timer.daemon = True
    with requests.Session() as session:
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        timer.start()
        try:
            yield session
        finally:
            timer.cancel()


class _WatchedAdapter(HTTPAdapter):
    """Knows the sockets that its connections opened."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self._is_over = False
        super().__init__()

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _watched(pool.ConnectionCls, self._watch)
        return pool

    def _watch(self, opened: socket.socket) -> None:
        self._sockets.append(opened)
        if self._is_over:
            self.cut()

    def cut(self) -> None:
        self._is_over = True
        for opened in self._sockets:
            with suppress(OSError):  # closed already
                opened.shutdown(socket.SHUT_RDWR)


def _watched(kind: Any, watch: Any) -> Any:
    """The class of connections, telling `watch` of every socket it opens; once watched, as it is."""
    if hasattr(kind, "is_watched"):
        return kind

    class WatchedConnection(kind):  # type: ignore[misc]
        is_watched = True

        def connect(self) -> None:
            super().connect()
            watch(self.sock)

    return WatchedConnection
