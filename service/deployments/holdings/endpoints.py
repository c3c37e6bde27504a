"""`/v1/deployments/{name}/holdings`: what is really rented, and that a plan has been carried out."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.deployments.holdings import service as holdings
from sutler.service.deployments.holdings.schemas import AckDocument, HoldingsDocument, HoldingsResource
from sutler.service.deployments.parameters import Name
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.problems import responses

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])

MACHINE: Final = {
    "provider": "vastai",
    "offer_id": "123",
    "gpu": "h100-sxm",
    "gpus": 4,
    "count": 1,
    "price_usd_per_hour": 9.05,
    "contract": "on_demand",
}
_ACK_BODY: Final[Any] = body_of(AckDocument)
_ACK_DOCS: Final = body_docs(AckDocument, first={"revision": 1})
_ACK_OPTIONAL: Final = {"requestBody": {**_ACK_DOCS["requestBody"], "required": False}}


async def _acknowledged(request: Request) -> AckDocument:
    """An empty body is the empty document."""
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return AckDocument()
    document: AckDocument = await _ACK_BODY.dependency(request)
    return document


@router.get("/{name}/holdings", responses=responses(401, 403, 404, 422, 429, 503))
async def get_holdings(services: Service, _reader: Reader, name: Name) -> HoldingsResource:
    """What is rented by the last report, and what of the current plan is missing or too much."""
    return await holdings.shown(services, name)


@router.put(
    "/{name}/holdings",
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(HoldingsDocument, one={"holdings": [MACHINE]}, list=[MACHINE], nothing={"holdings": []}),
)
async def put_holdings(
    services: Service,
    caller: Planner,
    name: Name,
    document: Annotated[HoldingsDocument, body_of(HoldingsDocument)],
) -> HoldingsResource:
    """Say all that is rented now: what is not listed is lost, and the deployment is looked at at once."""
    return await holdings.report(services, name, document, caller)


@router.post(
    "/{name}/holdings/ack",
    responses=responses(401, 403, 404, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra=_ACK_OPTIONAL,
)
async def acknowledge_plan(
    services: Service,
    caller: Planner,
    name: Name,
    document: Annotated[AckDocument, Depends(_acknowledged)],
) -> HoldingsResource:
    """Say that the current plan is carried out: what it rents is what is rented.

    What was held and stays is paid as before; what is new costs what the plan says.
    """
    return await holdings.acknowledge(services, name, document.revision, caller)
