"""From a domain error to an RFC 9457 problem: the one table. https://www.rfc-editor.org/rfc/rfc9457"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from service.auth.errors import NotAllowedError, NotAuthenticatedError, TooManyRequestsError
from service.db.errors import DatabaseError
from service.deployments.errors import NothingToServeError
from service.export.errors import NothingToRunError
from service.plans.errors import DocumentError, FieldProblem, NoMarketDataError
from service.profiles.errors import NoSuchProfileError
from service.web.errors import (
    BadParameterError,
    ChangedMeanwhileError,
    ConflictError,
    KeyReusedError,
    NotFoundError,
    NotYetError,
    RequestError,
    StillRunningError,
    TooLargeError,
    TooManyWaitingError,
    TooSlowError,
    UnsupportedMediaTypeError,
)
from solver.errors import InvalidProblemError

TYPE_PREFIX: Final = "urn:sutler:problem:"
RETRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: its HTTP status, the stable end of its `type`, and its title."""

    status: int
    slug: str
    title: str


@dataclass(frozen=True, slots=True)
class Problem:
    """What a caller is told: `fields` are (field, value, remedy), `retry_after_s` when to ask again."""

    kind: Kind
    detail: str
    fields: tuple[FieldProblem, ...] = ()
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As `application/problem+json`."""
        errors = [{"field": f.field, "value": f.value, "remedy": f.remedy} for f in self.fields]
        return {
            "type": f"{TYPE_PREFIX}{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "errors": errors,
        }


DEFECT: Final = Kind(500, "defect", "A defect of sutler")
CANCELLED: Final = Kind(409, "cancelled", "The plan was cancelled")
TIMED_OUT: Final = Kind(500, "solver-lost", "The solver did not finish")

# The first row whose class fits holds.
TABLE: Final[tuple[tuple[type[Exception], Kind], ...]] = (
    (DocumentError, Kind(422, "invalid-document", "Some fields are wrong")),
    (InvalidProblemError, Kind(422, "invalid-document", "Some fields are wrong")),
    (NoMarketDataError, Kind(503, "no-market-data", "There is nothing to plan with")),
    (DatabaseError, Kind(503, "database-away", "The database cannot be used now")),
    (NothingToServeError, Kind(409, "nothing-to-serve", "The current plan serves nothing")),
    (NoSuchProfileError, Kind(404, "not-found", "There is no such thing")),
    (NothingToRunError, Kind(409, "nothing-to-run", "The plan runs nothing")),
    (NotAuthenticatedError, Kind(401, "not-authenticated", "A key is needed")),
    (NotAllowedError, Kind(403, "not-allowed", "The key's scope does not reach that far")),
    (TooManyRequestsError, Kind(429, "too-many-requests", "The key's limit is used up for now")),
    (NotFoundError, Kind(404, "not-found", "There is no such thing")),
    (StillRunningError, Kind(409, "still-running", "The same request is being carried out")),
    (ConflictError, Kind(409, "conflict", "It does not fit what is there")),
    (ChangedMeanwhileError, Kind(412, "changed-meanwhile", "It was changed meanwhile")),
    (KeyReusedError, Kind(422, "idempotency-key-reused", "The idempotency key belongs to another request")),
    (UnsupportedMediaTypeError, Kind(415, "unsupported-media-type", "The body is neither JSON nor YAML")),
    (TooLargeError, Kind(413, "too-large", "The body is too large")),
    (TooSlowError, Kind(408, "too-slow", "The body did not arrive in time")),
    (BadParameterError, Kind(422, "bad-parameter", "A parameter is wrong")),
    (NotYetError, Kind(503, "not-yet", "The answer is being made")),
    (TooManyWaitingError, Kind(503, "queue-full", "Too many plans are waiting")),
)


def problem_of(error: Exception) -> Problem:
    """What to tell the caller; of a defect no more than that it is one."""
    kind = next((kind for cls, kind in TABLE if isinstance(error, cls)), None)
    if kind is None:
        return Problem(DEFECT, "this is a defect of sutler: report it with the request id")
    if isinstance(error, InvalidProblemError):
        fields: tuple[FieldProblem, ...] = (FieldProblem(error.field, repr(error.value)[:200], error.remedy),)
    elif isinstance(error, DocumentError):
        fields = error.problems
    else:
        fields = getattr(error, "fields", ())
    detail = _detail(error, fields)
    return Problem(kind, detail, fields, _retry_after_s(error, kind), _headers(kind))


def _detail(error: Exception, fields: tuple[FieldProblem, ...]) -> str:
    if fields and not isinstance(error, RequestError):
        more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
        return f"{fields[0]}{more}"
    return str(error)


def _retry_after_s(error: Exception, kind: Kind) -> float | None:
    stated: float | None = getattr(error, "retry_after_s", None)
    return RETRY_S if stated is None and kind.status == 503 else stated


def _headers(kind: Kind) -> Mapping[str, str]:
    return {"WWW-Authenticate": 'Bearer realm="sutler", Basic realm="sutler"'} if kind.status == 401 else {}
