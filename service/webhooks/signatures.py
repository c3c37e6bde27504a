"""Signs what is sent, as Standard Webhooks asks: symmetric signatures, version 1.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hmac
import secrets
from typing import Final

PREFIX: Final = "whsec_"
LEAST_BYTES: Final = 24  # as Standard Webhooks asks
MOST_BYTES: Final = 64  # as Standard Webhooks asks
NEW_BYTES: Final = 32  # the output of SHA-256: longer keys add nothing


class SecretError(ValueError):
    """What is no secret; the message does not show it."""


def new_secret() -> str:
    """A random one, as both sides keep it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(NEW_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes that sign. Raises SecretError."""
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True) if secret.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise SecretError(f"must be {PREFIX} and the base64 of {LEAST_BYTES} to {MOST_BYTES} random bytes")
    return key


def signed_headers(*secrets: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt, `at_s` being its epoch. `message_id` has no full stop.

    There is a signature for each secret: receivers take an event if any of them is right.
    """
    signed = b".".join((message_id.encode(), str(at_s).encode(), body))
    made = [base64.b64encode(hmac.digest(key_of(secret), signed, "sha256")).decode() for secret in secrets]
    signatures = " ".join(f"v1,{signature}" for signature in made)
    return {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": signatures}
