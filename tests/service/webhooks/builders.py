"""Receivers, messages and senders for the tests of webhooks."""

import base64
import hashlib
import hmac
from typing import Any, Final

from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.destinations import networks
from sutler.service.webhooks.sending import Message, SendLimits
from tests.adapters.server import Received

SECRET: Final = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NOWHERE: Final[tuple[Network, ...]] = ()
LOOPBACK: Final = networks(["127.0.0.0/8"])
QUICK: Final = SendLimits(connect_s=0.3, whole_s=0.3, farewell_s=0.1)
PATIENT: Final = SendLimits(connect_s=20.0, whole_s=20.0, farewell_s=20.0)


def a_message(url: str = "https://receiver.example/", **others: Any) -> Message:
    values = {"id": "0b0e6f7e", "secrets": (SECRET,), "body": '{"type":"plan.issued"}', **others}
    return Message(url=url, **values)


def is_signed(request: Received, secret: str = SECRET) -> bool:
    """The specification's check, written out as a receiver would."""
    key = base64.b64decode(secret.split("_", 1)[1])
    content = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    made = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    versions = [signature.split(",", 1) for signature in request.headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(given, made) for version, given in versions)
