"""What can be wrong with a request, by what the caller can do about it; no message shows a key.

RequestError
├── NotFoundError               there is no such thing: check its name or id
├── ConflictError               it does not fit what is there now
│   └── StillRunningError       the same request is being carried out: ask again later
├── ChangedMeanwhileError       If-Match names an older version: read it again, then change it
├── KeyReusedError              the Idempotency-Key was used with another request
├── NotAuthenticatedError       no key, or one that is unknown, revoked or expired: send one that is good
├── NotAllowedError             the key's scope does not reach that far: use another key
├── TooManyRequestsError        the key's limit is used up for now: ask again later
│   └── QuotaUsedUpError        the project's is: ask its operator for more
├── UnsupportedMediaTypeError   send JSON or YAML
├── BodyTooLargeError           the body is over the limit
├── TooSlowError                the body did not arrive in time
├── BadParameterError           a query parameter or header is wrong
├── NotYetError                 there will be an answer: ask again later
└── TooManyWaitingError         the queue is full: ask again later
"""

from collections.abc import Sequence
from typing import Final

from sutler.service.errors import NOT_FOUND, FieldProblem, Kind, SutlerError

BAD_PARAMETER: Final = Kind(422, "bad-parameter", "A parameter is wrong")


class RequestError(SutlerError):
    """Root of what requests are refused with. `fields` names what is wrong, where it is a field."""

    def __init__(
        self, detail: str, *, fields: tuple[FieldProblem, ...] = (), retry_after_s: float | None = None
    ) -> None:
        self._fields = fields
        self.retry_after_s = retry_after_s
        super().__init__(detail)

    @property
    def fields(self) -> Sequence[FieldProblem]:
        return self._fields


class NotFoundError(RequestError):
    """The path names something that does not exist."""

    kind = NOT_FOUND


class ConflictError(RequestError):
    """The request does not fit the present state of what it is about."""

    kind = Kind(409, "conflict", "It does not fit what is there")


class StillRunningError(ConflictError):
    """The same request is being carried out."""

    kind = Kind(409, "still-running", "The same request is being carried out")


class ChangedMeanwhileError(RequestError):
    """Someone else has changed it since."""

    kind = Kind(412, "changed-meanwhile", "It was changed meanwhile")


class KeyReusedError(RequestError):
    """The idempotency key belongs to another request."""

    kind = Kind(422, "idempotency-key-reused", "The idempotency key belongs to another request")


class NotAuthenticatedError(RequestError):
    """Nobody knows who asks."""

    kind = Kind(401, "not-authenticated", "A key is needed")


class NotAllowedError(RequestError):
    """The caller is known, and may not do this."""

    kind = Kind(403, "not-allowed", "The key's scope does not reach that far")


class TooManyRequestsError(RequestError):
    """The caller may do this, but not now."""

    kind = Kind(429, "too-many-requests", "The key's limit is used up for now")


class QuotaUsedUpError(TooManyRequestsError):
    """The project has used up what it may."""

    kind = Kind(429, "quota-used-up", "The project's quota is used up")

    @classmethod
    def of(
        cls, project: str, limit: str, value: int, instead: str, *, retry_after_s: float | None = None
    ) -> "QuotaUsedUpError":
        """`limit`: what is used up, as the project's has it; `instead`: what its callers can do."""
        remedy = f"is all of project {project}: {instead}, or have its operator raise it (`sutler projects limit`)"
        problem = FieldProblem(limit, str(value), remedy)
        return cls(str(problem), fields=(problem,), retry_after_s=retry_after_s)


class UnsupportedMediaTypeError(RequestError):
    """The body is neither JSON nor YAML."""

    kind = Kind(415, "unsupported-media-type", "The body is neither JSON nor YAML")


class BodyTooLargeError(RequestError):
    """The body is over the limit."""

    kind = Kind(413, "too-large", "The body is too large")


class TooSlowError(RequestError):
    """The body did not arrive in time."""

    kind = Kind(408, "too-slow", "The body did not arrive in time")


class BadParameterError(RequestError):
    """A query parameter or header is wrong."""

    kind = BAD_PARAMETER


class NotYetError(RequestError):
    """The answer is being made."""

    kind = Kind(503, "not-yet", "The answer is being made")


class TooManyWaitingError(RequestError):
    """The queue is full."""

    kind = Kind(503, "queue-full", "Too many plans are waiting")
