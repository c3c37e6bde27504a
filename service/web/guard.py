"""What is refused before any endpoint: hosts that this service does not go by.

Without keys, a web page of anybody's could have a browser on this machine call the API under a name that resolves to
loopback (DNS rebinding): the Host header gives it away. And a proxy on this machine would make all its callers local.
"""

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sutler.service.errors import Kind
from sutler.service.web.problem import ProblemDetail
from sutler.service.web.problems import answer, is_answered
from sutler.service.web.state import Services

MISDIRECTED = Kind(421, "wrong-host", "This is not the host that was meant")
FORWARDED = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Guard:
    """ASGI middleware, directly around the application."""

    def __init__(self, inner: ASGIApp, app: FastAPI) -> None:
        self._inner, self._app = inner, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        request = Request(scope, receive)
        services: Services = self._app.state.services
        refusal = self._refusal(request, services)
        if refusal is not None:
            await answer(ProblemDetail(MISDIRECTED, refusal), request)(scope, receive, send)
            return
        try:
            await self._inner(scope, receive, send)
        except Exception:
            if not is_answered(request):
                raise

    def _refusal(self, request: Request, services: Services) -> str | None:
        if not self._is_known_host(request, services):
            return "the Host header names another host: use localhost, or list the name in SUTLER_HOSTS"
        if not services.needs_key and FORWARDED & set(request.headers):
            return "it came through a proxy, whose callers may be anybody: start with --require-key"
        return None

    def _is_known_host(self, request: Request, services: Services) -> bool:
        if services.needs_key and not services.settings.hosts:
            return True
        host = request.headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return name.lower() in LOOPBACK | set(services.settings.hosts)
