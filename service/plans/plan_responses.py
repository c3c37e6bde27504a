"""Any kind of plan as an answer over HTTP: the plan, or where it is, or why it is not there; places in lists of them.

Used by the endpoints of plans and of offline plans.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from sutler.service.plans.plan_requests import Asked
from sutler.service.web.etags import tags_of
from sutler.service.web.paging import Page, bad_cursor, decode_cursor, encode_cursor
from sutler.service.web.problems import MEDIA_TYPE
from sutler.service.web.request_id import request_id_of

A = TypeVar("A", bound=Asked)
S = TypeVar("S")


def etag_of(record: Asked) -> str:
    """A plan that is there never changes."""
    return f'"{record.id}"'


def shown(record: A, job_of: Callable[[A], BaseModel]) -> Response:
    """The plan, or its job where there is none."""
    if record.document is not None:
        return Response(record.document, media_type="application/json", headers={"ETag": etag_of(record)})
    headers = {"Retry-After": "1"} if record.is_pending else {}
    return Response(job_of(record).model_dump_json(), media_type="application/json", headers=headers)


def shown_once(record: A, request: Request, job_of: Callable[[A], BaseModel]) -> Response:
    """The same, but 304 to who has the plan already."""
    if record.document is not None and etag_of(record) in tags_of(request):
        return Response(status_code=304, headers={"ETag": etag_of(record)})
    return shown(record, job_of)


def made(record: A, request: Request, job_of: Callable[[A], BaseModel], *, headers: dict[str, str]) -> Response:
    """What came of asking for it: 201, 202 with its place, or the problem that it failed with."""
    headers = {**headers, "Location": record.url}
    if record.document is not None:
        headers["ETag"] = etag_of(record)
        return Response(record.document, 201, media_type="application/json", headers=headers)
    if record.failure is not None:
        return _failed(record.failure, request, headers)
    return Response(job_of(record).model_dump_json(), 202, media_type="application/json", headers=headers)


def _failed(failure: dict[str, object], request: Request, headers: dict[str, str]) -> Response:
    status = int(str(failure["status"]))
    if status == 503:
        headers["Retry-After"] = "5"
    document = {**failure, "request_id": request_id_of(request)}
    return Response(json.dumps(document), status, media_type=MEDIA_TYPE, headers=headers)


def page_of(found: list[A], limit: int, summary_of: Callable[[A], S]) -> Page[S]:
    """One more record than wanted says that there is a next page."""
    kept = found[:limit]
    more = len(found) > limit
    last = encode_cursor(kept[-1].created_at.isoformat(), str(kept[-1].id)) if more else None
    return Page(items=[summary_of(record) for record in kept], next=last)


def before_of(cursor: str | None) -> tuple[datetime, UUID] | None:
    """Raises BadParameterError."""
    if cursor is None:
        return None
    at, plan_id = decode_cursor(cursor, parts=2)
    try:
        found = datetime.fromisoformat(at), UUID(plan_id)
    except ValueError:
        raise bad_cursor() from None
    if found[0].tzinfo is None:
        raise bad_cursor()
    return found
