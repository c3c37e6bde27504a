"""Small applications behind the real middleware, and what is said and counted while they are asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from types import SimpleNamespace
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import StreamingResponse
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from starlette.types import ASGIApp, Message

from sutler.service.logs import bound
from sutler.service.operation.metrics_of_the_store import StoreMetrics
from sutler.service.web.access_log import AccessLog
from sutler.service.web.caller import Principal
from sutler.service.web.metrics import Metrics
from sutler.service.web.request_id import RequestId, request_id_of

AWAY = StoreMetrics(is_up=False)
Answer = Callable[[Request], Awaitable[Any]]


@dataclass
class Served:
    """An application with its middleware; `lines` are the log's."""

    app: FastAPI
    log: StringIO
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.app.state.services = SimpleNamespace(metrics=self.metrics)

    @property
    def stack(self) -> ASGIApp:
        return RequestId(AccessLog(self.app, self.app))

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run(self.asked(method, path, **options))

    async def asked(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.stack, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    def lines(self, logger: str = "sutler") -> list[dict[str, Any]]:
        """Every line of the log parses."""
        found = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in found if line["logger"].startswith(logger)]

    def requests(self) -> dict[tuple[str, str, str], float]:
        """Counted requests by method, route and status."""
        found = samples(self.metrics)
        return {
            (labels["method"], labels["route"], labels["status"]): sample.value
            for sample in found
            if sample.name == "sutler_http_requests_total"
            for labels in [sample.labels]
        }

    def value(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        return value(samples(self.metrics), name, labels)


def samples(metrics: Metrics, gathered: StoreMetrics = AWAY) -> list[Sample]:
    content, _ = metrics.text(gathered)
    return [sample for family in text_string_to_metric_families(content.decode()) for sample in family.samples]


def value(found: list[Sample], name: str, labels: Mapping[str, str] | None = None) -> float:
    (only,) = [sample.value for sample in found if sample.name == name and sample.labels == dict(labels or {})]
    return only


def an_application() -> FastAPI:
    """One route per way in which a request can end."""
    app = FastAPI()
    router = APIRouter(prefix="/v1/things")

    @router.get("/{name:path}")
    async def read(name: str) -> str:
        return name

    @router.put("/{name}")
    async def write(request: Request, name: str) -> str:
        request.state.principal = Principal("key/ab12", "plan")
        return request_id_of(request)

    @router.post("/broken")
    async def broken() -> None:
        with bound(plan_id="p-1"):
            raise ZeroDivisionError("a defect\n\x1b[31m with sutler_ab12_aaaabbbbccccdddd")

    @router.delete("/streamed")
    async def streamed() -> StreamingResponse:
        return StreamingResponse(_chunks(3))

    @router.delete("/cut")
    async def cut() -> StreamingResponse:
        return StreamingResponse(_chunks(3, breaks=True))

    @router.patch("/endless")
    async def endless() -> None:
        await asyncio.sleep(3600)

    @app.get("/healthz")
    async def healthz() -> str:
        return "ok"

    app.include_router(router)
    return app


async def _chunks(number: int, *, breaks: bool = False) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b"12345"
        if breaks:
            raise ZeroDivisionError("in the middle")


def a_scope(method: str, path: str) -> dict[str, Any]:
    """As a server makes it, without a client behind it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(errors="backslashreplace"),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


async def no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


def secrets() -> Iterator[str]:
    """What must never be seen in a log, as it may come up in one."""
    yield "sutler_ab12cd34_QWERTYuiop-asdf_ghjkl1234567890"
    yield "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    yield "Authorization: Bearer short-key"
    yield "{'authorization': 'Basic OnBhc3M='}"
    yield "[(b'authorization', b'Bearer short-key')]"
    yield "Bearer QWERTYuiopasdfghjkl1234"
    yield "postgresql+psycopg://sutler:pa/ss:word@db.internal:5432/market"
    yield "https://rest.example.com/graphql?api_key=QWERTY1234&x=1"
    yield "host=db user=sutler password=hunter2hunter2"
