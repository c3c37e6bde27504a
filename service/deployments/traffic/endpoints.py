"""`/v1/deployments/{name}/observations`, `/traffic`, `/feeds`: what the deployment's models are asked, as it is seen.

It is sent as observations, or read from feeds.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.traffic import feeds
from sutler.service.deployments.traffic import service as traffic
from sutler.service.deployments.traffic.feed_schema import FeedsDocument, FeedsResource
from sutler.service.deployments.traffic.schemas import AcceptedResource, ObservationDocument, TrafficResource
from sutler.service.outgoing.destinations import networks
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.problems import responses

router = APIRouter(prefix="/v1/deployments", tags=["traffic"])

BUCKETS: Final[dict[str, Any]] = {
    "model": "chat",
    "observed_at": "2026-11-20T12:00:00Z",
    "window_s": 60,
    "buckets": [{"input_tokens": 480, "output_tokens": 210, "requests": 640}],
}
SINGLE: Final[dict[str, Any]] = {
    "model": "chat",
    "requests": [{"at": "2026-11-20T12:00:00.25Z", "input_tokens": 480, "output_tokens": 210}],
}
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


@router.post(
    "/{name}/observations",
    status_code=202,
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(ObservationDocument, buckets=BUCKETS, requests=SINGLE),
)
async def observe(
    services: Service,
    caller: Planner,
    name: Name,
    document: Annotated[ObservationDocument, body_of(ObservationDocument)],
) -> AcceptedResource:
    """Report traffic: buckets of similar requests over a window, or single requests. Sent twice, it counts once."""
    async with services.changing(caller) as connection:
        deployment = await deployments.found(connection, name)
        return await traffic.observe(connection, deployment, document, now=services.now())


@router.get("/{name}/traffic", responses=responses(401, 403, 404, 422, 429, 503))
async def get_traffic(services: Service, _reader: Reader, name: Name) -> TrafficResource:
    """What is known of the traffic of each model, beside what is planned for."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return await traffic.traffic(connection, deployment, now=services.now())


@router.put(
    "/{name}/feeds",
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(FeedsDocument, engines=ENGINES, prometheus=SERVER, none={"feeds": []}),
)
async def put_feeds(
    services: Service,
    caller: Planner,
    name: Name,
    document: Annotated[FeedsDocument, body_of(FeedsDocument)],
) -> FeedsResource:
    """Read the traffic from engines or from a Prometheus: these feeds, and no others. An empty list reads none."""
    async with services.changing(caller) as connection:
        deployment = await deployments.found(connection, name, lock=True)
        allowed = networks(services.settings.outgoing_networks)
        return await feeds.put(connection, deployment, document, caller, allowed=allowed)


@router.get("/{name}/feeds", responses=responses(401, 403, 404, 422, 429, 503))
async def get_feeds(services: Service, _reader: Reader, name: Name) -> FeedsResource:
    """The feeds, and how their last readings went."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return await feeds.shown(connection, deployment)
