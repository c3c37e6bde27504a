"""What was asked and how it was answered: one line and one count per request.

Changes are logged at INFO, as are callers that were refused, failures at WARNING; the rest, of which there may be
thousands a second, at DEBUG.
"""

import logging
from asyncio import CancelledError
from time import perf_counter
from typing import Final

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sutler.service.web.metrics import Metrics

logger = logging.getLogger("sutler.access")
defects = logging.getLogger("sutler.api")

UNMATCHED: Final = "unmatched"
GONE: Final = 499  # as nginx writes it: nobody was left to answer
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
REFUSED: Final = frozenset({401, 403})


class AccessLog:
    """ASGI middleware. `app` has the services, and with them the metrics, once it has started."""

    def __init__(self, inner: ASGIApp, app: FastAPI) -> None:
        self._inner, self._app = inner, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        metrics: Metrics = self._app.state.services.metrics
        exchange = _Exchange(send)
        metrics.request_began()
        try:
            await self._inner(scope, receive, exchange.send)
        except (ClientDisconnect, CancelledError):
            exchange.is_broken = True
            raise
        except Exception:
            exchange.is_broken, exchange.has_failed = True, True
            defects.exception("%s %s: a defect of sutler", scope["method"], route_of(scope))
            raise
        finally:
            exchange.end(scope, metrics)


class _Exchange:
    """One request and what has been answered so far."""

    def __init__(self, send: Send) -> None:
        self._send, self._began_at_s = send, perf_counter()
        self._status: int | None = None
        self._bytes = 0
        self.is_broken = self.has_failed = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        else:
            self._bytes += len(message.get("body", b""))
        await self._send(message)

    def end(self, scope: Scope, metrics: Metrics) -> None:
        seconds = perf_counter() - self._began_at_s
        status = 500 if self.has_failed else self._status or GONE
        route = route_of(scope)
        metrics.request_ended(scope["method"], route, status, seconds)
        level = _level(scope["method"], route, status)
        if logger.isEnabledFor(level):
            fields = {
                "method": scope["method"],
                "route": route,
                "path": scope["path"],
                "status": status,
                "seconds": round(seconds, 6),
                "bytes": self._bytes,
                "actor": getattr(scope.get("state", {}).get("principal"), "actor", None),
                **({"is_cut_off": True} if self.is_broken else {}),
            }
            logger.log(level, "%s %s %d", scope["method"], route, status, extra={"fields": fields})


def route_of(scope: Scope) -> str:
    """The template of the route that was chosen: paths themselves are without number."""
    return getattr(scope.get("route"), "path_format", UNMATCHED)


def _level(method: str, route: str, status: int) -> int:
    if route in PROBES:
        return logging.DEBUG
    if status >= 500:
        return logging.WARNING
    return logging.INFO if method not in READS or status in REFUSED else logging.DEBUG
