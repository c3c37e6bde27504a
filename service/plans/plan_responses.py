"""Any kind of plan as an answer over HTTP: the plan, or where it is, or why it is not there; places in lists of them.

Used by plan_endpoints.py for both kinds of plans, and by the endpoints of deployments.
"""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from sutler.service.plans.plan_table import StoredPlan
from sutler.service.web import paging
from sutler.service.web.paging import Page
from sutler.service.web.parameters import tags_of
from sutler.service.web.problems import MEDIA_TYPE
from sutler.service.web.request_id import request_id_of


def job_of(record: StoredPlan) -> BaseModel:
    """What callers get of a plan that is not there."""
    return record.job.model_validate(record, from_attributes=True)


def shown(record: StoredPlan) -> Response:
    """The plan, or its job where there is none."""
    if record.document is not None:
        return Response(record.document, media_type="application/json", headers={"ETag": _etag(record)})
    headers = {"Retry-After": "1"} if record.is_pending else {}
    return Response(job_of(record).model_dump_json(), media_type="application/json", headers=headers)


def shown_once(record: StoredPlan, request: Request) -> Response:
    """The same, but 304 to who has the plan already."""
    if record.document is not None and _etag(record) in tags_of(request):
        return Response(status_code=304, headers={"ETag": _etag(record)})
    return shown(record)


def made(record: StoredPlan, request: Request, *, headers: dict[str, str]) -> Response:
    """What came of asking for it: 201, 202 with its place, or the problem that it failed with."""
    headers = {**headers, "Location": record.url}
    if record.document is not None:
        headers["ETag"] = _etag(record)
        return Response(record.document, 201, media_type="application/json", headers=headers)
    if record.failure is not None:
        return _failed(record.failure, request, headers)
    return Response(job_of(record).model_dump_json(), 202, media_type="application/json", headers=headers)


def _etag(record: StoredPlan) -> str:
    """A plan that is there never changes."""
    return f'"{record.id}"'


def _failed(failure: dict[str, object], request: Request, headers: dict[str, str]) -> Response:
    status = int(str(failure["status"]))
    if status == 503:
        headers["Retry-After"] = "5"
    document = {**failure, "request_id": request_id_of(request)}
    return Response(json.dumps(document), status, media_type=MEDIA_TYPE, headers=headers)


def page_of(found: Sequence[StoredPlan], limit: int) -> Page[Any]:
    """The summaries of these plans; one more record than wanted says that there is a next page."""
    return paging.page_of([record.summary.model_validate(record, from_attributes=True) for record in found], limit)
