"""A small real HTTP server on loopback that gives scripted answers and remembers what it was asked.

    with ScriptedServer([Reply(429), json_reply({"offers": []})]) as server:
        ...                      # ask server.base_url
    server.requests[0].headers["authorization"]

The answers are given in turn and the last one repeats. In place of the list, or of one answer in it, there may be a
function of the request. `Raw` writes bytes of its own: what no well-behaved server would send.
"""

import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlsplit

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came: `target` with its query, header names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def data(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """A plain answer; Content-Length is added unless `headers` name one."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wire:
    """The connection, for `Raw`: both calls say False once the client or the server has gone."""

    connection: socket.socket
    closing: threading.Event

    def send(self, content: bytes) -> bool:
        try:
            self.connection.sendall(content)
        except OSError:
            return False
        return not self.closing.is_set()

    def wait(self, seconds: float) -> bool:
        return not self.closing.wait(seconds)


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer written by hand: status line, headers, body, pauses."""

    write: Callable[[Wire], None]


Answer = Reply | Raw
Script = Answer | Callable[[Received], Answer]


def json_reply(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, json.dumps(data).encode(), {"Content-Type": JSON, **(headers or {})})


def text_reply(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, text.encode(), {"Content-Type": "text/html; charset=utf-8", **(headers or {})})


def redirect_reply(target: str, status: int = 302) -> Reply:
    return Reply(status, headers={"Location": target})


def unused_base_url() -> str:
    """Where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


class ScriptedServer:
    """Listens from birth until the end of the `with` block; see the module."""

    def __init__(self, answers: Sequence[Script] | Callable[[Received], Answer]) -> None:
        self.requests: list[Received] = []
        self.failures: list[BaseException] = []
        self._answers = answers
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if self.failures and error is None:
            raise self.failures[0]

    def answer_to(self, request: Received) -> Answer:
        """Called by the handler threads."""
        with self._lock:
            turn = len(self.requests)
            self.requests.append(request)
        script = self._answers if callable(self._answers) else self._answers[min(turn, len(self._answers) - 1)]
        return script(request) if callable(script) else script

    def wire(self, connection: socket.socket) -> Wire:
        return Wire(connection, self._closing)


class _Server(ThreadingHTTPServer):
    """Handlers are joined on close, so that no thread or socket outlives its test."""

    daemon_threads = False
    owner: ScriptedServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the script; a script that fails is a mistake in the test."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.owner.failures.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10.0
    server: _Server

    def _answer(self) -> None:
        self.close_connection = True
        size = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(size)
        if len(body) < size:  # it was killed while it sent
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.owner.answer_to(Received(self.command, self.path, headers, body))
        with suppress(OSError):
            if isinstance(answer, Raw):
                answer.write(self.server.owner.wire(self.connection))
            else:
                self._send(answer)

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        headers = {"Content-Length": str(len(reply.body)), **reply.headers, "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Requests are in `ScriptedServer.requests`."""
