"""Who changes something, and by which request: what the audit log is told."""

from dataclasses import dataclass
from typing import Final

from fastapi import Request

from sutler.service.web.principal import Principal
from sutler.service.web.request_id import request_id_of


@dataclass(frozen=True, slots=True)
class Caller:
    """`request_id` None: no request is the cause."""

    principal: Principal
    request_id: str | None


CLI: Final = Caller(Principal("cli", "admin"), None)


def caller_of(request: Request, principal: Principal) -> Caller:
    """The caller of an endpoint."""
    return Caller(principal, request_id_of(request))
