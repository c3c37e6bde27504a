"""Signing in with a key, signing out, and the choice of light or dark."""

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from sutler.service.auth.sessions import Sessions
from sutler.service.pages.forms import Fields
from sutler.service.pages.rendering import THEME_COOKIE, THEMES, rendered
from sutler.service.pages.route import (
    SIGN_IN,
    Looking,
    Page,
    check_form,
    forget,
    is_of_this_page,
    keep,
    shown_token,
)
from sutler.service.web.errors import NotAllowedError, NotAuthenticatedError, TooManyRequestsError
from sutler.service.web.problem import problem_of
from sutler.service.web.request_id import request_id_of
from sutler.service.web.state import ForAnyone

router = APIRouter(prefix="/ui", route_class=Page, include_in_schema=False)
HOME = "/ui"
LONGEST_PATH = 2_000
Next = Annotated[str, Query(max_length=LONGEST_PATH)]


@router.get("/sign-in")
async def show_sign_in(request: Request, services: ForAnyone, next: Next = HOME, kept: bool = True) -> Response:
    """The form for a key; where none is needed, there is nothing to do here."""
    if not services.needs_key:
        return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
    return rendered(request, "sign_in.html", session=None, next=_own(next), refusal=None, kept=kept)


@router.post("/sign-in")
async def sign_in(request: Request, services: ForAnyone, fields: Fields) -> Response:
    """A new session, whatever the browser showed before. The form needs no token: who sends it has the key."""
    if not services.needs_key:
        return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
    if not is_of_this_page(request):
        raise NotAllowedError("this form is of another site: sign in on the service's own page")
    address = request.client.host if request.client else "unknown"
    key, following = fields.get("key", ""), _own(fields.get("next", HOME))
    try:
        session = await services.part(Sessions).begin(key, address=address, request_id=request_id_of(request))
    except (NotAuthenticatedError, TooManyRequestsError) as error:
        status = problem_of(error).kind.status
        return rendered(
            request, "sign_in.html", session=None, status=status, next=following, refusal=error.detail, kept=True
        )
    done = RedirectResponse(f"/ui/signed-in?{urlencode({'next': following})}", HTTPStatus.SEE_OTHER)
    keep(done, request, session)
    return done


@router.get("/signed-in")
async def signed_in(request: Request, services: ForAnyone, next: Next = HOME) -> Response:
    """Goes on to the page, if the browser has kept the session: not every address lets it."""
    try:
        await services.part(Sessions).found(shown_token(request) or "")
    except NotAuthenticatedError:
        return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': _own(next), 'kept': '0'})}", HTTPStatus.SEE_OTHER)
    return RedirectResponse(_own(next), HTTPStatus.SEE_OTHER)


@router.post("/sign-out")
async def sign_out(request: Request, services: ForAnyone, session: Looking, fields: Fields) -> Response:
    """Ends the session, here and in every other process."""
    check_form(request, session, fields)
    await services.part(Sessions).end(session, request_id=request_id_of(request))
    done = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
    forget(done)
    return done


@router.get("/theme")
async def choose_theme(to: str = "auto", next: Next = HOME) -> Response:
    """Light, dark, or as the system is; the page comes back in it."""
    done = RedirectResponse(_own(next), HTTPStatus.SEE_OTHER)
    if to in THEMES:
        done.set_cookie(THEME_COOKIE, to, max_age=365 * 86_400, path="/ui", httponly=True, samesite="lax")
    return done


def _own(path: str) -> str:
    """A page of ours, whatever was given: nobody is led elsewhere."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return HOME
    is_ours = parts.path == HOME or parts.path.startswith(f"{HOME}/")
    plain = not parts.scheme and not parts.netloc and "\\" not in path and path.isprintable()
    return path if is_ours and plain and not path.startswith("//") else HOME
