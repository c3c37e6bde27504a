"""Reads request bodies: JSON or YAML, bounded in size, depth and time, checked by the same code as files.

FastAPI's own reading converts values and knows neither YAML nor our errors; the OpenAPI document gets the schemas
by `described`.
"""

import asyncio
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar

from fastapi import Depends, Request

from sutler.service.documents.fields import Document
from sutler.service.documents.reading import MOST_YAML_BYTES
from sutler.service.web.caller import LOCAL
from sutler.service.web.checking import Checker, checked
from sutler.service.web.errors import BodyTooLargeError, TooSlowError, UnsupportedMediaTypeError
from sutler.service.web.state import services_of
from sutler.service.web.waiting import for_caller

D = TypeVar("D", bound=Document)
JSON_TYPES: Final = ("application/json",)
YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml")
PATIENCE_S: Final = 60.0  # chosen: the largest body of the default settings needs that long at 2 Mbit/s
QUICK_BYTES: Final = 20_000  # chosen: checked within milliseconds; more is, in a process beside this one

described: Final[list[type[Document]]] = []


def body_of(kind: type[D]) -> Any:
    """A dependency: the checked body, as `read_body` has it."""
    return Depends(partial(read_body, kind))


def body_docs(kind: type[Document], **examples: Any) -> dict[str, Any]:
    """`openapi_extra` of an endpoint with such a body; `examples` are whole bodies by name."""
    if kind not in described:
        described.append(kind)
    media = {
        "schema": {"$ref": f"#/components/schemas/{kind.__name__}"},
        "examples": {name: {"value": value} for name, value in examples.items()},
    }
    return {"requestBody": {"required": True, "content": {"application/json": media, "application/yaml": media}}}


async def read_body(kind: type[D], request: Request) -> D:
    """The checked body.

    Raises DocumentError for what is wrong in it, UnsupportedMediaTypeError, BodyTooLargeError, TooSlowError,
    TooManyRequestsError, ClientDisconnect.
    """
    is_json = _is_json(request)
    limit = services_of(request).settings.most_body_bytes
    content = await _content(request, limit if is_json else min(limit, MOST_YAML_BYTES))
    request.state.body_sha256 = sha256(content).digest()
    if len(content) < QUICK_BYTES:
        return checked(kind, content, is_json=is_json)
    principal = getattr(request.state, "principal", LOCAL)
    checking = services_of(request).part(Checker).checked(kind, content, is_json=is_json, actor=principal.actor)
    return await for_caller(request, checking)


def _is_json(request: Request) -> bool:
    given = request.headers.getlist("content-type")
    media_type = given[0].partition(";")[0].strip().lower() if len(given) == 1 else ""
    if media_type not in (*JSON_TYPES, *YAML_TYPES):
        shown = f"{', '.join(given)[:80]!r} is" if given else "is missing, which is"
        remedy = "send application/json or application/yaml (curl: -H 'Content-Type: ...' --data-binary @FILE)"
        raise UnsupportedMediaTypeError(f"Content-Type: {shown} neither JSON nor YAML: {remedy}")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMediaTypeError("Content-Encoding: send the body uncompressed")
    return media_type in JSON_TYPES


async def _content(request: Request, limit: int) -> bytes:
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated) > limit:
        raise _too_large(limit)
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise TooSlowError(f"the body did not arrive within {PATIENCE_S:g} s: send it again") from None
    return bytes(content)


def _too_large(limit: int) -> BodyTooLargeError:
    remedy = "plan on the store's market instead of sending one, or raise SUTLER_MOST_BODY_BYTES"
    return BodyTooLargeError(f"the body is larger than {limit:,} bytes: {remedy}")
