"""Signatures as the Standard Webhooks specification and its reference libraries make them."""

import base64

import pytest

from sutler.service.webhooks.signatures import SecretError, key_of, new_secret, signed_headers

# https://github.com/standard-webhooks/standard-webhooks/blob/main/libraries/python/tests/test_webhooks.py
PUBLISHED_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLISHED_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
PUBLISHED_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def of_bytes(count: int) -> str:
    return "whsec_" + base64.b64encode(b"\xff" * count).decode()


def test_the_published_example_is_signed_as_published() -> None:
    headers = signed_headers(PUBLISHED_SECRET, message_id=PUBLISHED_ID, at_s=1614265330, body=b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": PUBLISHED_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": PUBLISHED_SIGNATURE,
    }


@pytest.mark.parametrize(
    "changed", [{"message_id": "msg_other"}, {"at_s": 1614265331}, {"body": b'{"test":2432232314}'}]
)
def test_every_part_is_signed(changed: dict[str, object]) -> None:
    usual: dict[str, object] = {"message_id": PUBLISHED_ID, "at_s": 1614265330, "body": b'{"test": 2432232314}'}
    headers = signed_headers(PUBLISHED_SECRET, **{**usual, **changed})  # type: ignore[arg-type]
    assert headers["webhook-signature"] != PUBLISHED_SIGNATURE


def test_a_new_secret_is_long_enough_and_never_the_same() -> None:
    secrets = {new_secret() for _ in range(50)}
    assert len(secrets) == 50
    assert all(len(key_of(secret)) == 32 for secret in secrets)


@pytest.mark.parametrize("count", [24, 25, 32, 63, 64])
def test_a_secret_has_24_to_64_bytes(count: int) -> None:
    assert key_of(of_bytes(count)) == b"\xff" * count


@pytest.mark.parametrize(
    "secret",
    [
        "", "whsec_", of_bytes(0), of_bytes(23), of_bytes(65), of_bytes(32).removeprefix("whsec_"),
        of_bytes(32).upper(), of_bytes(32)[:-1], of_bytes(32) + "\n", " " + of_bytes(32), "whsec_" + "é" * 40,
        "whsec_" + "-_" * 20, "whsk_" + "A" * 44,
    ],
)  # fmt: skip
def test_anything_else_is_no_secret_and_is_not_shown(secret: str) -> None:
    with pytest.raises(SecretError) as caught:
        key_of(secret)
    assert len(secret) < 8 or secret[6:] not in str(caught.value)
