"""Why a caller is refused; no message shows a key.

AuthError
├── NotAuthenticatedError   no key, or one that is unknown, revoked or expired: send one that is good
├── NotAllowedError         the key's scope does not reach that far: use another key
└── TooManyRequestsError    the key's limit is used up for now: ask again later
"""

from sutler.service.errors import Kind
from sutler.service.web.errors import RequestError


class AuthError(RequestError):
    """Root of what callers are refused with; `retry_after_s` where waiting helps."""


class NotAuthenticatedError(AuthError):
    """Nobody knows who asks."""

    kind = Kind(401, "not-authenticated", "A key is needed")


class NotAllowedError(AuthError):
    """The caller is known, and may not do this."""

    kind = Kind(403, "not-allowed", "The key's scope does not reach that far")


class TooManyRequestsError(AuthError):
    """The caller may do this, but not now."""

    kind = Kind(429, "too-many-requests", "The key's limit is used up for now")
