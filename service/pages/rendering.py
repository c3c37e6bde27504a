"""Fills a template: who looks, how the service is, and what the page itself shows."""

import hashlib
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sutler.service.auth.sessions import Session
from sutler.service.export import FORMATS
from sutler.service.pages import assets
from sutler.service.pages import words as shown_as
from sutler.service.pages.fleet import colour_of
from sutler.service.wording import plan_words, words
from sutler.solver.version import VERSION

TEMPLATES: Final = Path(__file__).parent / "templates"
NAVIGATION: Final = (
    ("Deployments", "/ui"),
    ("What if", "/ui/what-if"),
    ("Market", "/ui/market"),
    ("Simulation", "/ui/simulation"),
    ("Report", "/ui/report"),
)
FILTERS: Final = (
    *("number", "price", "percent", "fleet", "layout", "machine", "contract_words", "objective_unit"),
    *("constraint_words", "unit_words", "place", "counted"),
)
SENTENCES: Final = ("achievement", "market_words", "money", "optimum", "proof", "solve")
THEMES: Final = ("auto", "light", "dark")
THEME_COOKIE: Final = "sutler-theme"


@cache
def environment() -> Environment:
    """Everything that is shown is escaped, and a name that no page gave is a defect."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in FILTERS:
        made.filters[name] = getattr(words, name)
    made.filters.update(state=shown_as.state, when=shown_as.when, signed=shown_as.signed)
    for name in SENTENCES:
        made.filters[name] = getattr(plan_words, name)
    made.globals.update(version=VERSION, asset=assets.url_of, fetch=assets.FETCH)
    made.globals.update(navigation=NAVIGATION, colour_of=colour_of, formats=FORMATS)
    return made


def rendered(
    request: Request, template: str, *, session: Session | None, status: int = HTTPStatus.OK, **shown: Any
) -> Response:
    """A page. One that was asked for again, to renew itself, and is the same as before is not sent again."""
    theme = request.cookies.get(THEME_COOKIE, "auto")
    text = (
        environment()
        .get_template(template)
        .render(
            session=session,
            path=request.url.path,
            address=_address(request),
            theme=theme if theme in THEMES else "auto",
            **shown,
        )
    )
    if request.headers.get("hx-request") != "true":
        return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})
    etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": etag, "Vary": "HX-Request"}
    if status == HTTPStatus.OK and request.headers.get("if-none-match") == etag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return HTMLResponse(text, status, headers=headers)


def _address(request: Request) -> str:
    """The path and the query of this page."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def with_query(request: Request, **changed: str | None) -> str:
    """This page's address with other values in its query; None leaves one out."""
    given = [(name, value) for name, value in request.query_params.multi_items() if name not in changed]
    given += [(name, value) for name, value in changed.items() if value is not None]
    return f"{request.url.path}?{urlencode(given)}" if given else request.url.path
