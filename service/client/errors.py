"""What a call of a service comes to, other than an answer.

ServiceError
├── UnreachableError   nobody answers there: start the service, or correct the URL
├── RefusedError       it answered with a problem (RFC 9457): its `slug` says of which kind
└── AnswerError        the answer is not as expected: service and client are of different versions
"""

from typing import Final

TYPE_PREFIX: Final = "urn:sutler:problem:"


class ServiceError(Exception):
    """Root of what a call comes to, other than an answer."""


class UnreachableError(ServiceError):
    """The service at this URL does not answer."""


class RefusedError(ServiceError):
    """A problem as the answer: HTTP `status`, `slug` for its kind, one line of `wrong` per field.

    `retry_after_s`: when the service says that it is worth another try; None: it does not say.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str = "",
        wrong: tuple[str, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.slug = status, kind.removeprefix(TYPE_PREFIX)
        self.wrong, self.retry_after_s = wrong, retry_after_s
        super().__init__(detail)


class AnswerError(ServiceError):
    """The service's answer is not what this version of sutler expects."""
