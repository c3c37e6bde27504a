"""Errors as answers: RFC 9457 `application/problem+json`, whatever raised them."""

import logging
from collections.abc import Iterable, Iterator
from math import ceil
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match

from sutler.service.documents.described import Described
from sutler.service.errors import DEFECT, FieldProblem, Kind, SutlerError, short_repr
from sutler.service.web.access_log import GONE
from sutler.service.web.errors import BAD_PARAMETER
from sutler.service.web.problem import ProblemDetail, problem_of
from sutler.service.web.request_id import request_id_of
from sutler.solver.errors import InvalidProblemError

logger = logging.getLogger("sutler.api")

MEDIA_TYPE: Final = "application/problem+json"
OF_THE_PROTOCOL: Final = {
    404: Kind(404, "not-found", "There is no such thing"),
    405: Kind(405, "method-not-allowed", "Not with this method"),
}

# Of the statuses that an endpoint documents, whatever brings one about.
DESCRIPTIONS: Final = {
    401: "A key is needed",
    403: "The key's scope does not reach that far",
    404: "There is no such thing",
    405: "Not with this method",
    408: "The body did not arrive in time",
    409: "The current plan serves nothing",
    412: "It was changed meanwhile",
    413: "The body is too large",
    415: "The body is neither JSON nor YAML",
    422: "Some fields are wrong",
    429: "The key's limit is used up for now",
    503: "There is nothing to plan with",
}


class WrongField(Described):
    """One field that is wrong."""

    field: str
    """Its path in the document, or the parameter's name."""
    value: str | None
    """What stands there, shortened; null: nothing."""
    remedy: str
    """What to do about it."""


class ProblemDetails(Described):
    """What went wrong and what to do (RFC 9457)."""

    type: str
    """Stable name of the kind of problem, a URN."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """This occurrence, with its remedy."""
    errors: list[WrongField] = []  # noqa: RUF012, copied for each
    """Every field that is wrong."""
    request_id: str | None = None
    """Names the request in the logs."""


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describes, for the OpenAPI document, that an endpoint may answer with these problems."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {status: {"description": DESCRIPTIONS.get(status, "Problem"), "content": content} for status in statuses}


def answer(problem: ProblemDetail, request: Request) -> Response:
    """The problem as a response."""
    headers = dict(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, ceil(problem.retry_after_s)))
    document = {**problem.document(), "request_id": request_id_of(request)}
    return JSONResponse(document, problem.kind.status, headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Makes every error of this application a problem."""
    for error in (SutlerError, InvalidProblemError):
        app.add_exception_handler(error, _handle)
    app.add_exception_handler(Exception, _handle_defect)
    app.add_exception_handler(ClientDisconnect, _handle_nobody)
    app.add_exception_handler(RequestValidationError, _handle_parameters)
    app.add_exception_handler(HTTPException, _handle_protocol)


async def _handle(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.kind is DEFECT:
        return await _handle_defect(request, error)
    if problem.kind.status >= 500:
        logger.warning("%s: %s", problem.kind.slug, problem.detail)
    return answer(problem, request)


async def _handle_nobody(_request: Request, _error: Exception) -> Response:
    """The caller left in the middle of the body: nobody reads this."""
    return Response(status_code=GONE)


async def _handle_defect(request: Request, error: Exception) -> Response:
    """The last resort; the traceback goes to the log, not to the caller."""
    logger.error("a defect of sutler: %s", type(error).__name__, exc_info=error)
    request.state.is_answered = True
    return answer(problem_of(error), request)


def is_answered(request: Request) -> bool:
    """Whether a defect was told to the caller: Starlette raises it again all the same."""
    return bool(getattr(request.state, "is_answered", False))


async def _handle_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = tuple(
        FieldProblem(".".join(str(part) for part in e["loc"][1:]), short_repr(e.get("input")), e["msg"])
        for e in error.errors()
    )
    return answer(ProblemDetail(BAD_PARAMETER, f"{found[0]}" if found else "a parameter is wrong", found), request)


async def _handle_protocol(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = OF_THE_PROTOCOL.get(error.status_code, Kind(error.status_code, "http", error.detail))
    detail = {404: "there is nothing at this path: /docs lists all", 405: "this path has other methods: see /docs"}
    headers = {"Allow": _methods_at(request)} if error.status_code == 405 else error.headers or {}
    return answer(ProblemDetail(kind, detail.get(error.status_code, error.detail), headers=headers), request)


def _methods_at(request: Request) -> str:
    """Names the methods of all routes at this path; Starlette names those of the first one only."""
    routes = [route for route in _flat(request.app.routes) if route.matches(request.scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in getattr(route, "methods", None) or ()}))


def _flat(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    for route in routes:
        included = getattr(route, "original_router", None)
        yield from (route,) if included is None else _flat(included.routes)
