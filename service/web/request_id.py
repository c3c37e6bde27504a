"""Every request has an id: the caller's own or a new one. Answers and logs name it."""

import re
from typing import Final
from uuid import uuid4

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sutler.service.logs import bound

HEADER: Final = b"x-request-id"
_USABLE: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class RequestId:
    """ASGI middleware, the outermost: takes `X-Request-ID` where it can be written anywhere, else makes one."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request_id = _given(scope) or uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        header = (HEADER, request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [(name, value) for name, value in message.get("headers", ()) if name.lower() != HEADER]
                message = {**message, "headers": [*others, header]}
            await send(message)

        with bound(request_id=request_id):
            await self._inner(scope, receive, send_with_id)


def request_id_of(request: Request) -> str:
    """The id of this request; where no middleware gave it one, it gets one now."""
    state = request.scope.setdefault("state", {})
    found: str = state.setdefault("request_id", uuid4().hex)
    return found


def _given(scope: Scope) -> str | None:
    """What the caller sent, unless it is unusable or sent twice."""
    values = [value for name, value in scope["headers"] if name.lower() == HEADER]
    if len(values) != 1 or not _USABLE.fullmatch(values[0]):
        return None
    return bytes(values[0]).decode()
