"""All pages, and what stands around them."""

from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from sutler.service.pages import assets, deployment, market, overview, report, signing_in, simulation, what_if
from sutler.service.pages.route import Looking, Page
from sutler.service.web.errors import NotFoundError

router = APIRouter(include_in_schema=False)
_rest = APIRouter(prefix="/ui", route_class=Page, include_in_schema=False)


@router.get("/")
async def go_to_the_pages() -> Response:
    """People who open the service's address want to see something."""
    return RedirectResponse("/ui", HTTPStatus.SEE_OTHER)


@_rest.get("/{path:path}")
async def there_is_no_such_page(request: Request, _looking: Looking, path: str) -> Response:
    """Whatever else is asked for under `/ui`."""
    if not path:
        return RedirectResponse("/ui", HTTPStatus.SEE_OTHER)
    raise NotFoundError(f"there is no page {path!r}: the links above lead to all of them")


PAGES = (assets, signing_in, overview, deployment, market, what_if, simulation, report)
for each in (*(page.router for page in PAGES), _rest):
    router.include_router(each)
