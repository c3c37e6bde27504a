"""Requests as the fake clouds see them, and replies that may break the rules of HTTP on purpose."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """`query` has the last value of each parameter; header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)

    def data(self) -> Any:
        """The body as JSON, or None where it is none."""
        return json_of(self.body)

    def bearer(self) -> str:
        """The key after `Authorization: Bearer`, or nothing."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer and how it goes over the wire.

    The body is sent `repeats` times, under a Content-Length that says so. After `sent_bytes` of it the connection is
    closed; with `drip_bytes` it comes in pieces of that size with pauses between them; `hangs`: nothing comes, ever.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    repeats: int = 1
    sent_bytes: int | None = None
    drip_bytes: int | None = None
    hangs: bool = False


def json_of(body: bytes) -> Any:
    """The data in a body, or None where it holds none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def json_reply(data: object, status: int = 200, headers: Mapping[str, str] | None = None, kind: str = JSON) -> Reply:
    """Python spells NaN as clouds with a careless encoder do."""
    body = json.dumps(data, separators=(",", ":")).encode()
    return Reply(status=status, headers={"Content-Type": kind, **(headers or {})}, body=body)
