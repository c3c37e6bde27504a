"""`/v1/deliveries` and `/v1/webhooks/{id}/deliveries`: what was sent, how it went, and how to send it again."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from sutler.service.auth.dependency import Admin
from sutler.service.db.asynchronous import begun, reading
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.caller import caller_of
from sutler.service.web.paging import Cursor, Limit, Page, before_of, page_of
from sutler.service.web.problems import responses
from sutler.service.web.state import Service
from sutler.service.webhooks import delivery_repository, replays
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.delivery_repository import Delivery, DeliveryStatus, FailedDeliveries
from sutler.service.webhooks.schemas import DeliveryResource, ReplayDocument, ReplayedResource, SentResource

router = APIRouter()  # its prefix and tag are those of the router that has it

Status = Annotated[DeliveryStatus | None, Query(description="`failed` are those that were given up; unset: all.")]
EXAMPLE: Final = {"since": "2026-11-20T12:00:00Z", "events": ["plan.issued"]}


@router.get("/deliveries", responses=responses(401, 403, 422, 429, 503))
async def list_all_deliveries(
    services: Service, _admin: Admin, status: Status = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[DeliveryResource]:
    """What was sent to all webhooks, and how it went, the newest first."""
    async with reading(services.engine) as connection:
        found = await delivery_repository.page(connection, status=status, limit=limit + 1, before=before_of(cursor))
    return page_of(found, limit, shown_delivery)


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
        found = await delivery_repository.page(
            connection, webhook_id=webhook_id, status=status, limit=limit + 1, before=before_of(cursor)
        )
    return page_of(found, limit, shown_delivery)


@router.get("/deliveries/{delivery_id}", responses=responses(401, 403, 404, 422, 429, 503))
async def get_delivery(services: Service, _admin: Admin, delivery_id: UUID) -> SentResource:
    """One delivery with its body, and when it is tried next."""
    async with reading(services.engine) as connection:
        delivery, body, turn = await replays.shown(connection, delivery_id)
    next_attempt_at = None if turn is None else turn.at
    return SentResource(**shown_delivery(delivery).model_dump(), body=body, next_attempt_at=next_attempt_at)


@router.post(
    "/deliveries/{delivery_id}/replay", status_code=202, responses=responses(401, 403, 404, 409, 422, 429, 503)
)
async def replay_delivery(
    request: Request, response: Response, services: Service, principal: Admin, delivery_id: UUID
) -> DeliveryResource:
    """Send it again, failed or delivered: the same id and body, up to ten attempts."""
    async with begun(services.engine) as connection:
        await services.count_change(connection, principal)
        caller = caller_of(request, principal)
        delivery = await replays.replay(connection, services.queue, delivery_id, caller=caller)
    response.headers["Location"] = f"/v1/deliveries/{delivery_id}"
    return shown_delivery(delivery)


@router.post(
    "/webhooks/{webhook_id}/replay",
    status_code=202,
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(ReplayDocument, all={}, some=EXAMPLE),
)
async def replay_webhook(
    request: Request,
    response: Response,
    services: Service,
    principal: Admin,
    webhook_id: UUID,
    document: Annotated[ReplayDocument, body_of(ReplayDocument)],
) -> ReplayedResource:
    """Send what was given up again, the oldest first, at most 500 deliveries; ask again while some remain."""
    async with begun(services.engine) as connection:
        await services.count_change(connection, principal)
        failed = FailedDeliveries(webhook_id, document.since, document.events)
        done = await replays.replay_failed(connection, services.queue, failed, caller=caller_of(request, principal))
    response.headers["Location"] = f"/v1/webhooks/{webhook_id}/deliveries"
    return done


def shown_delivery(delivery: Delivery) -> DeliveryResource:
    """A delivery as callers see it."""
    return DeliveryResource.model_validate(delivery, from_attributes=True)
