"""Webhooks as callers send and get them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, Name, Timestamp, reject
from sutler.service.errors import FieldProblem
from sutler.service.web.resource import Resource
from sutler.service.webhooks.events import Event
from sutler.service.webhooks.signatures import SecretError, key_of

DAY_S: Final = 86_400.0
LONGEST_OVERLAP_S: Final = 30 * DAY_S  # chosen: receivers are changed over within weeks
DeliveryStatus = Literal["pending", "delivered", "failed"]


class SecretDocument(Document):
    """A secret of the caller's own, if they want one."""

    secret: Annotated[str | None, Field(repr=False)] = None
    """whsec_ and the base64 of 24 to 64 random bytes, which sign the events; unset: one is made."""

    @model_validator(mode="before")
    @classmethod
    def _check_secret(cls, data: Any) -> Any:
        """Here, because errors of a field show its value."""
        given = data.get("secret") if isinstance(data, Mapping) else None
        try:
            if given is not None:
                key_of(given if isinstance(given, str) else "")
        except SecretError as error:
            reject([FieldProblem("secret", None, str(error))])
        return data


class WebhookDocument(SecretDocument):
    """Where to send which events."""

    url: Annotated[str, Field(min_length=1, examples=["https://receiver.example.org/sutler"])]
    """An https or http URL with a public host: what answers 2xx there has taken an event."""
    events: Annotated[tuple[Event, ...], Field(strict=False, min_length=1)]
    """Which events to send."""
    description: Name | None = None
    """What it is for, in the caller's words."""


class RotationDocument(SecretDocument):
    """How a webhook's secret is replaced."""

    overlap_s: Annotated[float, Field(ge=0, le=LONGEST_OVERLAP_S)] = DAY_S
    """For how long the secret of before signs as well, beside the new one; 0: it and all before it end now."""


class WebhookResource(Resource):
    """A webhook; its secret is shown only once, when it is made."""

    id: UUID
    """Identity of the webhook."""
    url: str
    """Where events are sent."""
    events: tuple[str, ...]
    """Which events are sent."""
    description: str
    """What it is for."""
    created_by: str
    """The key that made it."""
    created_at: datetime
    """When it was made."""


class NewWebhookResource(WebhookResource):
    """A webhook as its maker sees it."""

    secret: str
    """Signs the events; it is not shown again."""


class RotatedWebhookResource(NewWebhookResource):
    """A webhook whose secret was replaced."""

    former_until: datetime | None
    """Until then the secret of before signs as well; null: it ended at once."""


class DeliveryResource(Resource):
    """One event for one webhook."""

    id: UUID
    """The `webhook-id` of its requests."""
    webhook_id: UUID
    """Identity of the webhook that it is for."""
    event: str
    """Its type."""
    status: DeliveryStatus
    """pending until the receiver has answered 2xx (delivered) or ten attempts have failed (failed)."""
    attempts: int
    """How often it was sent so far, or since it was replayed."""
    last_status_code: int | None
    """What the receiver answered last."""
    last_error: str | None
    """What was wrong with the last attempt."""
    created_at: datetime
    """When the event was announced."""
    finished_at: datetime | None
    """When it was delivered or given up."""


class SentResource(DeliveryResource):
    """One event for one webhook, with what is sent."""

    body: str
    """The requests' body, as it is signed."""
    next_attempt_at: datetime | None
    """When it is tried next; null: not before a worker is free, or never."""


class ReplayDocument(Document):
    """Which of a webhook's failed deliveries are sent again."""

    since: Timestamp | None = None
    """Those announced then or later; unset: whenever."""
    events: Annotated[tuple[Event | Literal["webhook.test"], ...] | None, Field(strict=False, min_length=1)] = None
    """Those of these events; unset: of all."""


class ReplayedResource(Resource):
    """What became of a replay."""

    replayed: int
    """Deliveries that are pending again."""
    remaining: int
    """Failed deliveries that were meant too: ask again for them."""
