"""API keys: `sutler_<id>_<secret>`. The id is public; of the secret only a digest is kept.

The secret has 256 random bits, so that a plain SHA-256 of it tells nobody anything: there is no list of likely ones
to try, which is what slow digests are for.

Callers show a key in an `Authorization` header: `Bearer KEY`, or `Basic` with the key as password and any user name:
https://datatracker.ietf.org/doc/html/rfc6750 and https://datatracker.ietf.org/doc/html/rfc7617
"""

import base64
import re
import secrets
import string
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sutler.service.web.errors import NotAuthenticatedError

PREFIX: Final = "sutler"
ID_CHARS: Final = string.ascii_lowercase + string.digits
SECRET_CHARS: Final = string.ascii_letters + string.digits
ID_LENGTH: Final = 12
SECRET_LENGTH: Final = 43  # 62 ** 43 > 2 ** 256
_ID: Final = re.compile(rf"[a-z0-9]{{{ID_LENGTH}}}")
_KEY: Final = re.compile(rf"{PREFIX}_([a-z0-9]{{{ID_LENGTH}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})")
NO_DIGEST: Final = bytes(32)
"""What a key with an unknown id is compared with, so that it takes as long; the digest of nothing known."""
LONGEST_HEADER: Final = 4_096  # chosen: room for a long user name before a key of 63 characters, in base64
REMEDY: Final = (
    "send `Authorization: Bearer KEY`, or HTTP Basic with the key as password; `sutler keys create` makes one"
)


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A new key. `text` is the key itself, which is shown once, to who asked for it, and kept nowhere."""

    id: str
    text: str = field(repr=False)
    secret_sha256: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key that a caller shows: well formed, not yet known to be one of ours."""

    id: str
    secret_sha256: bytes = field(repr=False)


def make_key(key_id: str | None = None) -> MadeKey:
    """A key that nobody has seen before; with a `key_id`, in the place of that one."""
    key_id = key_id or "".join(secrets.choice(ID_CHARS) for _ in range(ID_LENGTH))
    secret = "".join(secrets.choice(SECRET_CHARS) for _ in range(SECRET_LENGTH))
    return MadeKey(key_id, f"{PREFIX}_{key_id}_{secret}", _digest(secret))


def parse_key(text: str) -> ShownKey | None:
    """Returns the id and digest of a key, None for what is no key of sutler's."""
    found = _KEY.fullmatch(text)
    return None if found is None else ShownKey(found[1], _digest(found[2]))


def is_key_id(text: str) -> bool:
    """Whether an id looks so."""
    return _ID.fullmatch(text) is not None


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def key_in(authorization: str) -> ShownKey:
    """The key that is shown. Raises NotAuthenticatedError, which repeats nothing of the header."""
    if len(authorization) > LONGEST_HEADER:
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
