"""What is refused before any endpoint, and what browsers are told with every answer.

Without keys, a web page of anybody's could have a browser on this machine call the API under a name that resolves to
loopback (DNS rebinding): the Host header gives it away. And a proxy on this machine would make all its callers local.
A page of another site could post to the API in the name of whoever looks at it, also with a password that the browser
remembers: browsers say where a request comes from (https://www.w3.org/TR/fetch-metadata/), other programs need not.
"""

from typing import Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sutler.service.errors import Kind
from sutler.service.web.problem import ProblemDetail
from sutler.service.web.problems import answer, is_answered
from sutler.service.web.state import Services

MISDIRECTED = Kind(421, "wrong-host", "This is not the host that was meant")
FOREIGN = Kind(403, "foreign-page", "A page of another site asks for it")
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES: Final = frozenset({"same-origin", "same-site", "none"})
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_PAGE: Final = "default-src 'none'; frame-ancestors 'none'"
PAGE: Final = (  # /docs, whose scripts and styles are partly in the page itself
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
PAGES: Final = "/ui"
OWN_PAGE: Final = {  # those under /ui, which have nothing in themselves that runs or paints
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",  # with none at all, browsers do not tell forms' origin either
    "Cross-Origin-Opener-Policy": "same-origin",
}
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
        send = _telling_browsers(send, is_of_pages=scope["path"].startswith(PAGES))
        refusal = self._refusal(request, services)
        if refusal is not None:
            await answer(refusal, request)(scope, receive, send)
            return
        try:
            await self._inner(scope, receive, send)
        except Exception:
            if not is_answered(request):
                raise

    def _refusal(self, request: Request, services: Services) -> ProblemDetail | None:
        if not self._is_known_host(request, services):
            remedy = "use localhost, or list the name in SUTLER_HOSTS"
            return ProblemDetail(MISDIRECTED, f"the Host header names another host: {remedy}")
        if not services.needs_key and FORWARDED & set(request.headers):
            remedy = "start with --require-key"
            return ProblemDetail(MISDIRECTED, f"it came through a proxy, whose callers may be anybody: {remedy}")
        if request.method not in SAFE and not _is_of_this_site(request):
            remedy = "ask from a page of the API's own host, or from a program that is no browser"
            return ProblemDetail(FOREIGN, f"a browser asks for a page of another site: {remedy}")
        return None

    def _is_known_host(self, request: Request, services: Services) -> bool:
        if services.needs_key and not services.settings.hosts:
            return True
        return _host_of(request) in LOOPBACK | set(services.settings.hosts)


def _host_of(request: Request) -> str:
    """Without the port."""
    host = request.headers.get("host", "")
    return (host.rsplit(":", 1)[0] if not host.endswith("]") else host).lower()


def _is_of_this_site(request: Request) -> bool:
    """By what the browser says of the site, or else, where it does not, of the page's host; ports do not tell."""
    sites = request.headers.getlist("sec-fetch-site")
    if sites:
        return OWN_SITES.issuperset(sites)
    return all(_host_in(origin) == _host_of(request) for origin in request.headers.getlist("origin"))


def _host_in(origin: str) -> str:
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return ""
    return f"[{host}]" if ":" in host else host


def _telling_browsers(send: Send, *, is_of_pages: bool) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            is_page = headers.get("content-type", "").startswith("text/html")
            headers.update({**HEADERS, "Content-Security-Policy": PAGE if is_page else NO_PAGE})
            headers.update(OWN_PAGE if is_of_pages else {})
        await send(message)

    return sending
