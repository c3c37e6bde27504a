"""Why a caller is refused. service/errors.py has the HTTP statuses.

AuthError
├── NotAuthenticatedError   no key, or one that is unknown, revoked or expired
├── NotAllowedError         the key's scope does not reach that far
└── TooManyRequestsError    the key's limit is used up for now
"""


class AuthError(Exception):
    """Root of what callers are refused with; the message never shows a key."""

    def __init__(self, detail: str, *, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(detail)


class NotAuthenticatedError(AuthError):
    """Who is it?"""


class NotAllowedError(AuthError):
    """Not with this scope."""


class TooManyRequestsError(AuthError):
    """Not now."""
