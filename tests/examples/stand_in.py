"""A small HTTP server that speaks the part of sutler's REST contract that the examples use.

It runs on loopback with real sockets, long polls, ETags, problems and both kinds of authentication; what it does not
do is plan: a test publishes the plans.
"""

import json
from base64 import b64decode
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit
from uuid import UUID, uuid4

from sutler.service.deployments.terraform import NothingToServeError, state_document
from sutler.service.documents.plan import PlanDocument

KEY = "sutler_0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Deployment:
    """One standing problem; `problem` is None where a test published plans alone."""

    id: UUID
    problem: Any = None
    version: int = 1
    plan: PlanDocument | None = None
    is_pending: bool = False


def a_problem(status: int, detail: str, *, errors: tuple[dict[str, Any], ...] = (), **headers: str) -> Answer:
    """An RFC 9457 problem."""
    document = {"type": "urn:sutler:problem:x", "title": "Told so", "status": status, "detail": detail}
    given = {"Content-Type": "application/problem+json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    return Answer(status, json.dumps({**document, "errors": errors}).encode(), given)


class StandIn:
    """What tests see of the service: where it is, the key it wants, and a way to publish plans."""

    key = KEY

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.deployments: dict[str, Deployment] = {}
        self.answers: deque[Answer] = deque()
        """Given first, whatever is asked."""
        self.changed = Condition()
        self.heard = Condition()

    def publish(self, name: str, plan: PlanDocument) -> None:
        """The plan is the deployment's current one from now on."""
        with self.changed:
            deployment = self.deployments.setdefault(name, Deployment(uuid4()))
            deployment.plan, deployment.is_pending = plan, False
            self.changed.notify_all()

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Of one request."""
        with self.heard:
            self.asked.append(f"{method} {target}")
            self.heard.notify_all()
        if self.answers:
            return self.answers.popleft()
        if not _is_allowed(headers.get("Authorization", "")):
            return a_problem(401, "a key is needed", WWW_Authenticate="Bearer")
        return self._authenticated(method, urlsplit(target), headers, body)

    def _authenticated(self, method: str, url: SplitResult, headers: Mapping[str, str], body: bytes) -> Answer:
        match [method, *url.path.removeprefix("/v1/deployments/").split("/")]:
            case ["PUT", name]:
                return self._put(name, json.loads(body))
            case ["GET", name] if name in self.deployments:
                return self._deployment(name, 200)
            case ["GET", name, "plan"] if name in self.deployments:
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                return self._plan(name, query, headers.get("If-None-Match"))
            case ["GET", name, "terraform", "state"] if name in self.deployments:
                return self._state(name)
        return a_problem(404, f"there is nothing at {url.path}")

    def _put(self, name: str, body: Any) -> Answer:
        if body.get("problem", {}).get("budget_usd_per_hour", 1) < 0:
            wrong = {"field": "problem.budget_usd_per_hour", "value": "-1", "remedy": "must be at least 0"}
            return a_problem(422, "some fields are wrong", errors=(wrong,))
        with self.changed:
            is_new = name not in self.deployments
            deployment = self.deployments.setdefault(name, Deployment(uuid4()))
            if deployment.problem != body["problem"]:
                deployment.is_pending = is_new or deployment.problem is not None
                deployment.problem = body["problem"]
        return self._deployment(name, 201 if is_new else 200)

    def _deployment(self, name: str, status: int) -> Answer:
        deployment = self.deployments[name]
        plan, pending = deployment.plan, None
        if deployment.is_pending:
            pending = {"id": str(uuid4()), "status": "running", "url": "/v1/plans/x"}
        current = None if plan is None else {"id": str(plan.id), "revision": plan.revision, "status": plan.status}
        return _json(
            status,
            {
                "id": str(deployment.id),
                "name": name,
                "version": deployment.version,
                "problem": deployment.problem,
                "plan": current,
                "pending": pending,
            },
        )

    def _plan(self, name: str, query: Mapping[str, str], held: str | None) -> Answer:
        after = int(query.get("after", 0))

        def is_news() -> bool:
            plan = self.deployments[name].plan
            return plan is not None and plan.revision > after and held != _etag(plan)

        with self.changed:
            self.changed.wait_for(is_news, timeout=float(query.get("wait_s", 0)))
            plan = self.deployments[name].plan
            if plan is None:
                return a_problem(503, "the first plan is being made", Retry_After="0")
            headers = {"ETag": _etag(plan), "Content-Type": "application/json"}
            body = plan.model_dump_json(by_alias=True).encode()
            return Answer(200, body, headers) if is_news() else Answer(304, b"", headers)

    def _state(self, name: str) -> Answer:
        deployment = self.deployments[name]
        if deployment.plan is None:
            return a_problem(503, "the first plan is being made", Retry_After="1")
        try:
            state = state_document(deployment.plan, deployment=name, lineage=deployment.id)
        except NothingToServeError as error:
            return a_problem(409, str(error))
        return Answer(200, state.encode(), {"Content-Type": "application/json"})


def _etag(plan: PlanDocument) -> str:
    return f'"{plan.id}"'


def _json(status: int, content: Any) -> Answer:
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _is_allowed(authorization: str) -> bool:
    kind, _, given = authorization.partition(" ")
    if kind == "Basic":
        return b64decode(given).decode().partition(":")[2] == KEY
    return kind == "Bearer" and given == KEY


@contextmanager
def a_stand_in() -> Iterator[StandIn]:
    """Serving on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = stand_in.answer(self.command, self.path, dict(self.headers), body)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status != 304:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_PUT = do_GET  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: Any) -> None:
            """Tests look at `asked`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stand_in = StandIn(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
