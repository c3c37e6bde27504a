"""The listening side: requests in, replies out, and whatever a reply wants done to the connection."""

import contextlib
import re
import select
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from sutler.adapters.fake.wire import Reply, Request, json_reply

MOST_BODY_BYTES: Final = 4 * 1024 * 1024  # chosen: far above any request to a cloud
IDLE_TIMEOUT_S: Final = 60.0  # chosen: longer than any poll keeps a connection
_LOOK_S: Final = 0.1  # chosen: how soon a hanging reply sees that its client has gone
_LENGTH: Final = re.compile("[0-9]{1,12}")
_BODILESS: Final = frozenset({204, 304})

Responder = Callable[[Request], Reply]


class Listener:
    """Serves in a thread of its own from birth until `close`. Raises OSError where the address is taken."""

    def __init__(self, address: tuple[str, int], answer: Responder, *, drip_pause_s: float) -> None:
        self._server = _Server(address, answer, drip_pause_s)
        self.address: tuple[str, int] = (address[0], self._server.server_port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="fake-cloud"
        )
        self._thread.start()

    def close(self) -> None:
        self._server.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Its threads are joined on close; closing their connections makes them end."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], answer: Responder, drip_pause_s: float) -> None:
        self.answer, self.drip_pause_s = answer, drip_pause_s
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are nothing to speak of; a defect of the fake is."""
        import sys

        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake-cloud"
    sys_version = ""
    timeout = IDLE_TIMEOUT_S
    wbufsize = -1
    server: _Server

    def _serve(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            self._send(json_reply({"error": "Content-Length is missing, wrong or too large"}, 411))
            return
        try:
            parts = urlsplit(self.path)
        except ValueError:
            self._send(json_reply({"error": "the target of the request is no path"}, 400))
            return
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(self.server.answer(Request(self.command, parts.path, query, headers, body)))

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

    def _body(self) -> bytes | None:
        """Reads the body; returns None for one that HTTP/1.1 allows but no client of these APIs sends."""
        length = self.headers.get("content-length", "0").strip()
        if "transfer-encoding" in self.headers or not _LENGTH.fullmatch(length) or int(length) > MOST_BODY_BYTES:
            return None
        return self.rfile.read(int(length))

    def _send(self, reply: Reply) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            if reply.hangs:
                self._hang()
                return
            self._send_head(reply)
            for piece in self._pieces(reply):
                self.wfile.write(piece)
                self.wfile.flush()
            if reply.sent_bytes is not None:
                self.close_connection = True

    def _send_head(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status not in _BODILESS:
            self.send_header("Content-Length", str(len(reply.body) * reply.repeats))
        if self.server.closing.is_set():
            self.close_connection = True
        self.end_headers()
        self.wfile.flush()

    def _pieces(self, reply: Reply) -> Iterator[bytes]:
        body = reply.body if reply.sent_bytes is None else reply.body[: reply.sent_bytes]
        if reply.drip_bytes is None:
            for _ in range(reply.repeats):
                yield body
            return
        for start in range(0, len(body), reply.drip_bytes):
            if start and self.server.closing.wait(self.server.drip_pause_s):
                self.close_connection = True
                return
            yield body[start : start + reply.drip_bytes]

    def _hang(self) -> None:
        """Waits until the client hangs up or the server closes."""
        self.close_connection = True
        while not self.server.closing.is_set():
            readable, _, _ = select.select([self.connection], [], [], _LOOK_S)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return
            if readable:
                self.server.closing.wait(_LOOK_S)

    def log_message(self, format: str, *args: object) -> None:
        """The fake has a log of its own, which shows no query: a key may be in there."""
