"""API keys: `sutler_<id>_<secret>`. The id is public; of the secret only a digest is kept.

The secret has 256 random bits, so that a plain SHA-256 of it tells nobody anything: there is no list of likely ones
to try, which is what slow digests are for.
"""

import re
import secrets
import string
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

PREFIX: Final = "sutler"
ID_CHARS: Final = string.ascii_lowercase + string.digits
SECRET_CHARS: Final = string.ascii_letters + string.digits
ID_LENGTH: Final = 12
SECRET_LENGTH: Final = 43  # 62 ** 43 > 2 ** 256

_ID: Final = re.compile(rf"[a-z0-9]{{{ID_LENGTH}}}")
_KEY: Final = re.compile(rf"{PREFIX}_([a-z0-9]{{{ID_LENGTH}}})_([A-Za-z0-9]{{{SECRET_LENGTH}}})")
NO_DIGEST: Final = bytes(32)
"""What a key with an unknown id is compared with, so that it takes as long; the digest of nothing known."""


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


def make_key() -> MadeKey:
    """A key that nobody has seen before."""
    key_id = "".join(secrets.choice(ID_CHARS) for _ in range(ID_LENGTH))
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
