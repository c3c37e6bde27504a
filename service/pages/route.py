"""Who looks at a page, and how errors are told there: as pages, with what to do."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from sutler.service.auth.authenticator import Authenticator
from sutler.service.auth.sessions import Session, Sessions, visiting
from sutler.service.errors import DEFECT, FieldProblem, SutlerError, short_repr
from sutler.service.pages.forms import Fields
from sutler.service.pages.rendering import rendered
from sutler.service.web.caller import Caller, Scope
from sutler.service.web.errors import BAD_PARAMETER, NotAllowedError, NotAuthenticatedError
from sutler.service.web.problem import ProblemDetail, problem_of
from sutler.service.web.request_id import request_id_of
from sutler.service.web.state import Services, services_of
from sutler.solver.errors import InvalidProblemError

SIGN_IN: Final = "/ui/sign-in"
ON_LOOPBACK: Final = "sutler-session"
ELSEWHERE: Final = "__Host-sutler-session"  # a name that browsers take over TLS alone, and from this host alone
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
logger = logging.getLogger("sutler.pages")


class Page(APIRoute):
    """A route whose errors are pages. Who is not signed in is led to where they can, and back."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                response = await inner(request)
            except NotAuthenticatedError:
                return to_sign_in(request)
            except ClientDisconnect:
                raise
            except RequestValidationError as error:
                return told(request, _of_parameters(error))
            except (SutlerError, InvalidProblemError) as error:
                return told(request, problem_of(error))
            except Exception as error:
                logger.error("a defect of sutler: %s", type(error).__name__, exc_info=error)
                return told(request, problem_of(error))
            session: Session | None = getattr(request.state, "new_visit", None)
            if session is not None:
                keep(response, request, session)
            return response

        return answered


def told(request: Request, problem: ProblemDetail) -> Response:
    """A page that says what went wrong and what to do."""
    if problem.kind.status >= HTTPStatus.INTERNAL_SERVER_ERROR and problem.kind is not DEFECT:
        logger.warning("%s: %s", problem.kind.slug, problem.detail)
    session = getattr(request.state, "session", None)
    shown = {"problem": problem, "request_id": request_id_of(request)}
    return rendered(request, "error.html", session=session, status=problem.kind.status, **shown)


def to_sign_in(request: Request) -> Response:
    """Leads to the sign-in, from where it goes on to this page."""
    here = f"{request.url.path}?{request.url.query}".rstrip("?") if request.method == "GET" else "/ui"
    there = f"{SIGN_IN}?next={quote(here)}"
    if request.headers.get("hx-request") == "true":
        return Response(status_code=HTTPStatus.OK, headers={"HX-Redirect": there, "Cache-Control": "no-store"})
    return RedirectResponse(there, HTTPStatus.SEE_OTHER)


def _of_parameters(error: RequestValidationError) -> ProblemDetail:
    found = tuple(
        FieldProblem(".".join(str(part) for part in e["loc"][1:]), short_repr(e.get("input")), e["msg"])
        for e in error.errors()
    )
    return ProblemDetail(BAD_PARAMETER, f"{found[0]}" if found else "a parameter is wrong", found)


async def _shown(request: Request) -> Session:
    services, token = services_of(request), shown_token(request)
    if not services.needs_key:
        session = visiting(token)
        if token is None:
            request.state.new_visit = session
    elif token is None:
        raise NotAuthenticatedError("sign in first")
    else:
        session = await services.part(Sessions).found(token)
    request.state.session, request.state.principal = session, session.principal
    return session


Shown = Annotated[Session, Depends(_shown)]


async def _services(request: Request, session: Shown) -> Services:
    return services_of(request).of(session.principal.project)


Service = Annotated[Services, Depends(_services)]
"""What a page works with: of the project of who looks, and of no other."""


def _who_looks(needed: Scope) -> Callable[..., Coroutine[Any, Any, Session]]:
    async def looking(request: Request, session: Shown) -> Session:
        if not session.principal.may(needed):
            raise NotAllowedError(
                f"this key has scope {session.principal.scope}, this needs {needed}: sign in with another key, or "
                f"make one with `sutler keys create NAME --scope {needed}`"
            )
        services_of(request).part(Authenticator).check(session.principal, reads=request.method in {"GET", "HEAD"})
        return session

    return looking


Looking = Annotated[Session, Depends(_who_looks("read"))]
"""Whoever may see."""


@dataclass(frozen=True, slots=True)
class Acting:
    """Somebody who changes something, from a form of ours."""

    session: Session
    caller: Caller


async def _acting(
    request: Request,
    session: Annotated[Session, Depends(_who_looks("plan"))],
    fields: Fields,
) -> Acting:
    check_form(request, session, fields)
    return Acting(session, Caller(session.principal, request_id_of(request)))


Planning = Annotated[Acting, Depends(_acting)]
"""Whoever may plan, and has sent a form of ours."""


def check_form(request: Request, session: Session, fields: Mapping[str, str]) -> None:
    """Raises NotAllowedError for a form that is none of ours, or of another session."""
    if not is_of_this_page(request) or not session.is_of_form(fields.get("form_token", "")):
        raise NotAllowedError("this form is of another session or of another site: load the page again, then send it")


def is_of_this_page(request: Request) -> bool:
    """By what the browser says of where a form was; one that says nothing gives the page's origin at least."""
    sites = request.headers.getlist("sec-fetch-site")
    if sites:
        return set(sites) == {"same-origin"}
    try:
        hosts = [urlsplit(origin).netloc.lower() for origin in request.headers.getlist("origin")]
    except ValueError:
        return False
    return hosts == [request.headers.get("host", "").lower()]


def shown_token(request: Request) -> str | None:
    """What the browser shows of a session."""
    return request.cookies.get(_cookie_at(request))


def _cookie_at(request: Request) -> str:
    """Its name at this host: beyond this machine the one that no other host can have planted, which takes TLS.

    A service that asks for no key has nothing to keep that another could take."""
    is_plain = request.url.hostname in LOOPBACK or not services_of(request).needs_key
    return ON_LOOPBACK if is_plain else ELSEWHERE


def keep(response: Response, request: Request, session: Session) -> None:
    """Has the browser keep the session: over TLS, or on this machine."""
    name = _cookie_at(request)
    response.set_cookie(name, session.token, path="/", secure=name == ELSEWHERE, httponly=True, samesite="lax")


def forget(response: Response) -> None:
    """Has the browser forget it, and what it keeps of pages."""
    for name in (ON_LOOPBACK, ELSEWHERE):
        response.delete_cookie(name, path="/", secure=name == ELSEWHERE, httponly=True, samesite="lax")
    response.headers["Clear-Site-Data"] = '"cache"'
