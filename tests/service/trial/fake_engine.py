"""A small engine with known times, over real HTTP: streams tokens as vLLM's server does, in slots, step by step.

A request takes a slot, `base_s` and `prefill_s_per_token` for each prompt token, and then `step_s` for each further
token: c clients in c slots get c / (ttft + (output - 1) step) requests/s.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeEngine:
    """What it does, and what it saw."""

    model: str = "llama-3.1-8b"
    base_s: float = 0.02
    prefill_s_per_token: float = 0.0002
    step_s: float = 0.02
    slots: int = 64
    key: str | None = None
    version: str = "0.12.0"
    max_model_len: int = 8192
    added_tokens: int = 0
    missing_tokens: int = 0
    cached_fraction: float = 0.0
    silent_after: int | None = None
    counts: bool = True
    fails_at: int | None = None
    url: str = ""
    prompts: list[tuple[int, ...]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    most_at_once: int = 0
    running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def answering(engine: FakeEngine) -> Iterator[FakeEngine]:
    """The engine at a free port of this machine."""
    slots = threading.Semaphore(engine.slots)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _plain(self, status: int, body: object) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _is_refused(self) -> bool:
            engine.keys.add(given := self.headers.get("Authorization"))
            if engine.key is not None and given != f"Bearer {engine.key}":
                self._plain(401, {"error": f"Unauthorized: {given}"})
                return True
            return False

        def do_GET(self) -> None:
            if self.path == "/version":
                self._plain(200, {"version": engine.version})
            elif self.path != "/v1/models":
                self._plain(404, {"detail": "Not Found"})
            elif not self._is_refused():
                row = {"id": engine.model, "root": engine.model, "max_model_len": engine.max_model_len}
                self._plain(200, {"object": "list", "data": [row]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self._is_refused():
                return
            with engine.lock:
                engine.prompts.append(tuple(body["prompt"]))
                if engine.fails_at == len(engine.prompts):
                    self._plain(500, {"error": f"out of memory, {self.headers.get('Authorization')}"})
                    return
            with slots:
                with engine.lock:
                    engine.running += 1
                    engine.most_at_once = max(engine.most_at_once, engine.running)
                try:
                    self._stream(body)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                finally:
                    with engine.lock:
                        engine.running -= 1

        def _stream(self, body: dict[str, Any]) -> None:
            prompt, output = len(body["prompt"]), body["max_tokens"] - engine.missing_tokens
            assert body["ignore_eos"] is True
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            due = time.perf_counter() + engine.base_s + prompt * engine.prefill_s_per_token
            for token in range(output):
                time.sleep(max(0.0, due - time.perf_counter()))
                if token == engine.silent_after:
                    time.sleep(5.0)
                self._event({"choices": [{"index": 0, "text": " a", "finish_reason": None}]})
                due += engine.step_s
            if engine.counts:
                usage = {
                    "prompt_tokens": prompt + engine.added_tokens,
                    "completion_tokens": output,
                    "prompt_tokens_details": {"cached_tokens": int(prompt * engine.cached_fraction)},
                }
                self._event({"choices": [], "usage": usage})
            self._send(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

        def _event(self, event: object) -> None:
            self._send(f"data: {json.dumps(event)}\n\n".encode())

        def _send(self, content: bytes) -> None:
            self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        engine.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield engine
        finally:
            server.shutdown()
