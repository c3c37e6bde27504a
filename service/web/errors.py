"""What can be wrong with a request, by what the caller can do about it. service/errors.py has their HTTP statuses.

RequestError
├── NotFoundError               there is no such thing: check its name or id
├── ConflictError               it does not fit what is there now
│   └── StillRunningError       the same request is being carried out: ask again later
├── ChangedMeanwhileError       If-Match names an older version: read it again, then change it
├── KeyReusedError              the Idempotency-Key was used with another request
├── UnsupportedMediaTypeError   send JSON or YAML
├── TooLargeError               the body is over the limit
├── TooSlowError                the body did not arrive in time
├── BadParameterError           a query parameter or header is wrong
├── NotYetError                 there will be an answer: ask again later
└── TooManyWaitingError         the queue is full: ask again later
"""

from service.plans.errors import FieldProblem


class RequestError(Exception):
    """Root of what requests are refused with. `fields` names what is wrong, where it is a field."""

    def __init__(
        self, detail: str, *, fields: tuple[FieldProblem, ...] = (), retry_after_s: float | None = None
    ) -> None:
        self.fields = fields
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class NotFoundError(RequestError):
    """There is no such thing."""


class ConflictError(RequestError):
    """It does not fit what is there now."""


class StillRunningError(ConflictError):
    """The same request is being carried out."""


class ChangedMeanwhileError(RequestError):
    """Someone else has changed it since."""


class KeyReusedError(RequestError):
    """The idempotency key belongs to another request."""


class UnsupportedMediaTypeError(RequestError):
    """The body is neither JSON nor YAML."""


class TooLargeError(RequestError):
    """The body is over the limit."""


class TooSlowError(RequestError):
    """The body did not arrive in time."""


class BadParameterError(RequestError):
    """A query parameter or header is wrong."""


class NotYetError(RequestError):
    """The answer is being made."""


class TooManyWaitingError(RequestError):
    """The queue is full."""
