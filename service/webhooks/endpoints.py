"""`/v1/deliveries`: what was sent, how it went, and how to send it again; `/v1/webhooks`: who is told of plans."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Response

from sutler.service.auth.dependency import Admin, Service
from sutler.service.db.asynchronous import reading
from sutler.service.outgoing.destinations import networks
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.paging import Cursor, Limit, Page, before_of, page_of
from sutler.service.web.problems import responses
from sutler.service.webhooks import replays, repository
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.events import EVENTS
from sutler.service.webhooks.repository import FailedDeliveries
from sutler.service.webhooks.schemas import (
    DeliveryResource,
    DeliveryStatus,
    NewWebhookResource,
    ReplayDocument,
    ReplayedResource,
    RotatedWebhookResource,
    RotationDocument,
    SentResource,
    WebhookDocument,
    WebhookResource,
)
from sutler.service.webhooks.sealing import Sealer

router = APIRouter(prefix="/v1", tags=["webhooks"])

Status = Annotated[DeliveryStatus | None, Query(description="`failed` are those that were given up; unset: all.")]
REPLAYED: Final = {"since": "2026-11-20T12:00:00Z", "events": ["plan.issued"]}
REGISTERED: Final = {"url": "https://receiver.example.org/sutler", "events": list(EVENTS), "description": "on-call"}


@router.get("/deliveries", responses=responses(401, 403, 422, 429, 503))
async def list_all_deliveries(
    services: Service, _admin: Admin, status: Status = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[DeliveryResource]:
    """What was sent to all webhooks, and how it went, the newest first."""
    async with reading(services.engine) as connection:
        found = await repository.deliveries(connection, status=status, limit=limit + 1, before=before_of(cursor))
    return page_of(found, limit)


@router.get("/webhooks/{webhook_id}/deliveries", responses=responses(401, 403, 404, 422, 429, 503))
async def list_deliveries(
    services: Service,
    _admin: Admin,
    webhook_id: UUID,
    status: Status = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DeliveryResource]:
    """What was sent there, and how it went, the newest first."""
    async with reading(services.engine) as connection:
        await webhooks.get(connection, webhook_id)
        found = await repository.deliveries(
            connection, webhook_id=webhook_id, status=status, limit=limit + 1, before=before_of(cursor)
        )
    return page_of(found, limit)


@router.get("/deliveries/{delivery_id}", responses=responses(401, 403, 404, 422, 429, 503))
async def get_delivery(services: Service, _admin: Admin, delivery_id: UUID) -> SentResource:
    """One delivery with its body, and when it is tried next."""
    async with reading(services.engine) as connection:
        return await replays.shown(connection, delivery_id)


@router.post(
    "/deliveries/{delivery_id}/replay", status_code=202, responses=responses(401, 403, 404, 409, 422, 429, 503)
)
async def replay_delivery(
    response: Response, services: Service, caller: Admin, delivery_id: UUID
) -> DeliveryResource:
    """Send it again, failed or delivered: the same id and body, up to ten attempts."""
    async with services.changing(caller) as connection:
        delivery = await replays.replay(connection, services.queue, delivery_id, caller=caller)
    response.headers["Location"] = f"/v1/deliveries/{delivery_id}"
    return delivery


@router.post(
    "/webhooks/{webhook_id}/replay",
    status_code=202,
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(ReplayDocument, all={}, some=REPLAYED),
)
async def replay_webhook(
    response: Response,
    services: Service,
    caller: Admin,
    webhook_id: UUID,
    document: Annotated[ReplayDocument, body_of(ReplayDocument)],
) -> ReplayedResource:
    """Send what was given up again, the oldest first, at most 500 deliveries; ask again while some remain."""
    async with services.changing(caller) as connection:
        failed = FailedDeliveries(webhook_id, document.since, document.events)
        done = await replays.replay_failed(connection, services.queue, failed, caller=caller)
    response.headers["Location"] = f"/v1/webhooks/{webhook_id}/deliveries"
    return done


@router.post(
    "/webhooks",
    status_code=201,
    responses=responses(401, 403, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(WebhookDocument, all_events=REGISTERED),
)
async def create_webhook(
    response: Response,
    services: Service,
    caller: Admin,
    document: Annotated[WebhookDocument, body_of(WebhookDocument)],
) -> NewWebhookResource:
    """Have events sent to a URL, signed with the secret that this answer shows once.

    https://www.standardwebhooks.com
    """
    async with services.changing(caller) as connection:
        allowed = networks(services.settings.outgoing_networks)
        sealer = Sealer(services.settings.secrets_keys)
        webhook, secret = await webhooks.register(
            connection, document, caller, allowed=allowed, sealer=sealer, now=services.now()
        )
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    return NewWebhookResource(**webhook.model_dump(), secret=secret)


@router.get("/webhooks", responses=responses(401, 403, 422, 429, 503))
async def list_webhooks(
    services: Service, _admin: Admin, limit: Limit = 50, cursor: Cursor = None
) -> Page[WebhookResource]:
    """All webhooks, the newest first."""
    async with reading(services.engine) as connection:
        found = await repository.page(connection, limit=limit + 1, before=before_of(cursor))
    return page_of(found, limit)


@router.get("/webhooks/{webhook_id}", responses=responses(401, 403, 404, 422, 429, 503))
async def get_webhook(services: Service, _admin: Admin, webhook_id: UUID) -> WebhookResource:
    """One webhook, without its secret."""
    async with reading(services.engine) as connection:
        return await webhooks.get(connection, webhook_id)


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=responses(401, 403, 404, 422, 429, 503))
async def delete_webhook(services: Service, caller: Admin, webhook_id: UUID) -> None:
    """Send nothing there any more, also not what is under way."""
    async with services.changing(caller) as connection:
        await webhooks.remove(connection, webhook_id, caller)


@router.post(
    "/webhooks/{webhook_id}/rotate-secret",
    responses=responses(401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(RotationDocument, a_day={}, at_once={"overlap_s": 0}),
)
async def rotate_secret(
    services: Service,
    caller: Admin,
    webhook_id: UUID,
    document: Annotated[RotationDocument, body_of(RotationDocument)],
) -> RotatedWebhookResource:
    """Have events signed with another secret, which this answer shows once, and for a while with that of before too.

    https://www.standardwebhooks.com
    """
    async with services.changing(caller) as connection:
        sealer = Sealer(services.settings.secrets_keys)
        secret, until = await webhooks.rotate_secret(connection, webhook_id, document, caller, sealer=sealer)
        webhook = await webhooks.get(connection, webhook_id)
    return RotatedWebhookResource(**webhook.model_dump(), secret=secret, former_until=until)


@router.post("/webhooks/{webhook_id}/test", status_code=202, responses=responses(401, 403, 404, 422, 429, 503))
async def test_webhook(response: Response, services: Service, caller: Admin, webhook_id: UUID) -> DeliveryResource:
    """Send the event `webhook.test`; the webhook's deliveries say how it went."""
    async with services.changing(caller) as connection:
        delivery = await webhooks.test(connection, services.queue, webhook_id, caller)
    response.headers["Location"] = f"/v1/webhooks/{webhook_id}/deliveries"
    return delivery
