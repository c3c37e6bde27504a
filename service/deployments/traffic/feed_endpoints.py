"""`/v1/deployments/{name}/feeds`: where the traffic is read from, instead of being sent."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Request

from sutler.service.auth.dependency import Planner, Reader
from sutler.service.db.asynchronous import begun, reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.traffic import feeds
from sutler.service.deployments.traffic.feed_schema import FeedsDocument, FeedsResource
from sutler.service.outgoing.destinations import networks
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.caller import caller_of
from sutler.service.web.problems import responses
from sutler.service.web.state import Service

router = APIRouter(prefix="/v1/deployments", tags=["traffic"])

ENGINES: Final[dict[str, Any]] = {
    "feeds": [{"model": "chat", "kind": "vllm", "urls": ["https://chat-1.example.org/metrics"], "every_s": 15}]
}
SERVER: Final[dict[str, Any]] = {
    "feeds": [
        {
            "model": "chat",
            "kind": "prometheus",
            "url": "https://prometheus.example.org",
            "selector": {"model_name": "chat"},
        }
    ]
}


@router.put(
    "/{name}/feeds",
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(FeedsDocument, engines=ENGINES, prometheus=SERVER, none={"feeds": []}),
)
async def put_feeds(
    request: Request,
    services: Service,
    principal: Planner,
    name: Name,
    document: Annotated[FeedsDocument, body_of(FeedsDocument)],
) -> FeedsResource:
    """Read the traffic from engines or from a Prometheus: these feeds, and no others. An empty list reads none."""
    async with begun(services.engine) as connection:
        await services.count_change(connection, principal)
        deployment = await deployments.found(connection, name, lock=True)
        allowed = networks(services.settings.outgoing_networks)
        return await feeds.put(connection, deployment, document, caller_of(request, principal), allowed=allowed)


@router.get("/{name}/feeds", responses=responses(401, 403, 404, 422, 429, 503))
async def get_feeds(services: Service, _reader: Reader, name: Name) -> FeedsResource:
    """The feeds, and how their last readings went."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return await feeds.shown(connection, deployment)
