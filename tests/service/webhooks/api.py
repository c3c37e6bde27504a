"""The application, put together as the server does it, and asked without a socket in between."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import httpx

from sutler.service.api.app import wrapped
from sutler.service.fork_server import ForkServer
from sutler.service.main import api as application
from tests.service.webhooks.office import Office

A_WEBHOOK: Final = {"url": "https://receiver.example/hook", "events": ["plan.issued"]}


class Api:
    """Runs on the office's event loop."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        self.office.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.office.run(self._stack.aclose())

    async def _open(self) -> None:
        app = application(ForkServer(), needs_key=False)
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app=wrapped(app))
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self._client = await self._stack.enter_async_context(client)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.ask_at(method, f"/webhooks{path}", **options)

    def ask_at(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Beside webhooks."""
        return self.office.run(self._client.request(method, f"/v1{path}", **options))

    def probe(self) -> dict[str, str]:
        """What `/readyz` says of each check that is not well."""
        checks = self.office.run(self._client.get("/readyz")).json()["checks"]
        return {check["name"]: check["detail"] for check in checks if not check["ok"]}

    def get(self, path: str = "", **params: Any) -> httpx.Response:
        return self.ask("GET", path, params=params)

    def made(self, **others: Any) -> httpx.Response:
        """Registers a webhook; what is given replaces the usual, None removes it."""
        body = {**A_WEBHOOK, **others}
        return self.ask("POST", "", json={name: value for name, value in body.items() if value is not None})
