"""Engines that count as vLLM does, on servers of this machine; one can also be asked as a Prometheus is."""

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from threading import Thread
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

TOKENS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
TTFT_S: Final = (0.01, 0.1, 0.25, 0.5, 1.0, 2.5)
TPOT_S: Final = (0.01, 0.025, 0.05, 0.1)
ASKED: Final = re.compile(r"increase\((?P<name>[\w:]+?)(?P<part>_bucket|_sum)?\{(?P<labels>.*)\}\[(?P<ms>\d+)ms\]\)")


@dataclass
class Counted:
    """A histogram."""

    bounds: tuple[float, ...]
    values: list[float] = field(default_factory=list)

    def cumulative(self) -> dict[str, int]:
        counts = [0] * (len(self.bounds) + 1)
        for value in self.values:
            counts[bisect_left(self.bounds, value)] += 1
        names = [f"{float(bound)}" for bound in self.bounds] + ["+Inf"]
        return dict(zip(names, accumulate(counts), strict=True))


@dataclass
class Engine:
    """What one process has served since it began. `answer`: what it says instead, if anything: status and body."""

    url: str = ""
    began_s: float = 1_790_000_000.0
    finished: int = 0
    answer: tuple[int, bytes] | None = None
    asked: list[str] = field(default_factory=list)
    histograms: dict[str, Counted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart(began_s=self.began_s)

    def restart(self, *, began_s: float) -> None:
        self.began_s, self.finished = began_s, 0
        self.histograms = {
            "vllm:request_prompt_tokens": Counted(TOKENS),
            "vllm:request_generation_tokens": Counted(TOKENS),
            "vllm:time_to_first_token_seconds": Counted(TTFT_S),
            "vllm:time_per_output_token_seconds": Counted(TPOT_S),
        }

    def serve(self, requests: int, *, input_tokens: float, output_tokens: float) -> None:
        self.finished += requests
        values = (input_tokens, output_tokens, 0.2, 0.02)
        for histogram, value in zip(self.histograms.values(), values, strict=True):
            histogram.values += [value] * requests

    def metrics(self) -> str:
        lines = [
            "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.",
            "# TYPE process_start_time_seconds gauge",
            f"process_start_time_seconds {self.began_s!r}",
            "# HELP vllm:num_requests_running Number of requests in model execution batches.",
            "# TYPE vllm:num_requests_running gauge",
            'vllm:num_requests_running{engine="0",model_name="chat"} 3.0',
            "# TYPE vllm:request_success_total counter",
            f'vllm:request_success_total{{engine="0",finished_reason="stop",model_name="chat"}} {self.finished}.0',
        ]
        for name, counted in self.histograms.items():
            lines.append(f"# TYPE {name} histogram")
            lines += [
                f'{name}_bucket{{engine="0",le="{bound}",model_name="chat"}} {count}.0'
                for bound, count in counted.cumulative().items()
            ]
            lines.append(f'{name}_count{{engine="0",model_name="chat"}} {len(counted.values)}.0')
            lines.append(f'{name}_sum{{engine="0",model_name="chat"}} {float(sum(counted.values))!r}')
        return "\n".join(lines) + "\n"

    def queried(self, query: str) -> dict[str, object]:
        """As a Prometheus that has seen all of it within the range."""
        asked = ASKED.search(query)
        if asked is None:
            raise AssertionError(f"no query that was expected: {query}")
        name, part = asked["name"], asked["part"]
        if name == "vllm:request_success_total":
            return _vector({"": self.finished})
        counted = self.histograms.get(name)
        if counted is None:
            return _vector({})
        return _vector(counted.cumulative() if part == "_bucket" else {"": sum(counted.values)})


def _vector(values: dict[str, float] | dict[str, int]) -> dict[str, object]:
    result = [{"metric": {"le": le} if le else {}, "value": [0.0, f"{value}"]} for le, value in values.items()]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


class Site:
    """Serves one engine: `/metrics`, and `/api/v1/query`."""

    def __init__(self) -> None:
        self.engine = engine = Engine()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path)
                engine.asked.append(path.path)
                status, body = engine.answer or (200, _body(engine, path.path, path.query))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        engine.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _body(engine: Engine, path: str, query: str) -> bytes:
    if path == "/metrics":
        return engine.metrics().encode()
    return json.dumps(engine.queried(parse_qs(query)["query"][0])).encode()
