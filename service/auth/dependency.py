"""What endpoints declare to say who may call them, `Reader`, `Planner` or `Admin`, each of which is a Caller; and
`Service`, which reaches no further than that caller's project."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Security
from fastapi.requests import HTTPConnection
from fastapi.security.http import HTTPBase

from sutler.service.auth.authenticator import Authenticator
from sutler.service.web.caller import Caller, Principal, Scope
from sutler.service.web.errors import NotAllowedError, NotAuthenticatedError
from sutler.service.web.request_id import request_id_of
from sutler.service.web.state import Services, services_of

READS: Final = frozenset({"GET", "HEAD"})


class _Documented(HTTPBase):
    """A way to show a key, for the OpenAPI document; the header is read in one place, for all of them."""

    async def __call__(self, request: HTTPConnection) -> None:
        return None


_BEARER: Final = _Documented(
    scheme="bearer", scheme_name="bearer", description="A key as `sutler keys create` prints it."
)
_BASIC: Final = _Documented(scheme="basic", scheme_name="basic", description="The key as password, any user name.")


async def _authenticated(
    request: Request, _bearer: Annotated[None, Security(_BEARER)], _basic: Annotated[None, Security(_BASIC)]
) -> Principal:
    principal = await services_of(request).part(Authenticator).principal(_authorization(request))
    request.state.principal = principal
    return principal


Shown = Annotated[Principal, Depends(_authenticated)]


async def _services(request: Request, principal: Shown) -> Services:
    return services_of(request).of(principal.project)


Service = Annotated[Services, Depends(_services)]
"""What an endpoint works with: of the caller's project, and of no other."""


def _who_may(needed: Scope) -> Callable[..., Coroutine[Any, Any, Caller]]:
    async def allowed(request: Request, principal: Shown) -> Caller:
        if not principal.may(needed):
            raise NotAllowedError(
                f"this key has scope {principal.scope}, this call needs {needed}: use another key, or make one with "
                f"`sutler keys create NAME --scope {needed}`"
            )
        services_of(request).part(Authenticator).check(principal, reads=request.method in READS)
        return Caller(principal, request_id_of(request))

    return allowed


def _authorization(request: Request) -> str | None:
    """Returns the one header; several could mean different callers to a proxy and to us."""
    given = request.headers.getlist("authorization")
    if len(given) > 1:
        raise NotAuthenticatedError("Authorization: the header is there several times: send it once")
    return given[0] if given else None


Reader = Annotated[Caller, Depends(_who_may("read"))]
Planner = Annotated[Caller, Depends(_who_may("plan"))]
Admin = Annotated[Caller, Depends(_who_may("admin"))]
