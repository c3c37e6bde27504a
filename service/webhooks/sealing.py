"""Webhooks' secrets as they are stored: encrypted with the first of SUTLER_SECRETS_KEYS; without one, as they are.

AES-256-GCM by https://cryptography.io, bound to the webhook's id, so that no stored one serves another webhook. What
is stored names the key by the beginning of its SHA-256: keys follow each other without a secret being lost.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sutler.service.errors import Exit, RemediedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED: Final = "aes-256-gcm"
NONCE_BYTES: Final = 12  # as GCM has it
_REPLACING: Final = "(rotate-secret, with an overlap_s of 0)"


class SealedError(RemediedError):
    """A stored secret that cannot be read; it is kept as it is."""

    exit_status = Exit.BAD_INPUT


class Sealer:
    """Encrypts with the first of its keys, and reads what any of them has encrypted, or none."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {_id_of(key): key for key in keys}
        self.key_id = next(iter(self._keys), None)
        """Of the first; None: there is none."""

    def knows(self, key_id: str) -> bool:
        return key_id in self._keys

    def sealed(self, secret: str, webhook_id: UUID) -> str:
        """The secret as it is stored."""
        if self.key_id is None:
            return secret
        nonce = secrets.token_bytes(NONCE_BYTES)
        content = nonce + _cipher(self._keys[self.key_id]).encrypt(nonce, secret.encode(), webhook_id.bytes)
        return f"{SEALED}:{self.key_id}:{base64.b64encode(content).decode()}"

    def opened(self, stored: str, webhook_id: UUID) -> str:
        """The secret. Raises SealedError."""
        if not stored.startswith(f"{SEALED}:"):
            return stored
        key_id, _, encoded = stored.removeprefix(f"{SEALED}:").partition(":")
        if not self.knows(key_id):
            raise unknown_key(key_id)
        from cryptography.exceptions import InvalidTag

        try:
            content = base64.b64decode(encoded)
            found = _cipher(self._keys[key_id]).decrypt(
                content[:NONCE_BYTES], content[NONCE_BYTES:], webhook_id.bytes
            )
        except (InvalidTag, ValueError):
            raise SealedError("the secret is not as it was stored", f"replace it {_REPLACING}") from None
        return found.decode()


def unknown_key(key_id: str) -> SealedError:
    return SealedError(
        f"the secret is encrypted with the key {key_id}, which SUTLER_SECRETS_KEYS here does not hold",
        "add that key, for the API and the workers, and start them again; where it is lost, replace the secret "
        f"{_REPLACING}",
    )


def _id_of(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()[:8]


def _cipher(key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes a while, and few have a key

    return AESGCM(key)
