"""The key in an `Authorization` header: `Bearer KEY`, or `Basic` with the key as password and any user name.

https://datatracker.ietf.org/doc/html/rfc6750 and https://datatracker.ietf.org/doc/html/rfc7617
"""

import base64
from typing import Final

from sutler.service.auth.errors import NotAuthenticatedError
from sutler.service.auth.keys import ShownKey, parse_key

LONGEST: Final = 4_096  # chosen: room for a long user name before a key of 63 characters, in base64
REMEDY: Final = (
    "send `Authorization: Bearer KEY`, or HTTP Basic with the key as password; `sutler keys create` makes one"
)


def key_in(authorization: str) -> ShownKey:
    """The key that is shown. Raises NotAuthenticatedError, which repeats nothing of the header."""
    if len(authorization) > LONGEST:
        raise NotAuthenticatedError(f"Authorization: the header is longer than any key: {REMEDY}")
    scheme, _, rest = authorization.strip(" \t").partition(" ")
    shown = rest.strip(" \t")
    match scheme.lower():
        case "bearer":
            found = parse_key(shown)
        case "basic":
            found = parse_key(_password(shown))
        case _:
            raise NotAuthenticatedError(f"Authorization: neither Bearer nor Basic: {REMEDY}")
    if found is None:
        raise NotAuthenticatedError(f"Authorization: this is no key of sutler's: {REMEDY}")
    return found


def _password(rest: str) -> str:
    """The user's name may be in any encoding."""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2].decode("ascii")
    except ValueError:
        raise NotAuthenticatedError(f"Authorization: Basic takes user:KEY in base64: {REMEDY}") from None
