"""`/v1/deployments/{name}/rates`: what the deployment has learnt of how fast its engines are."""

from fastapi import APIRouter

from sutler.service.auth.dependency import Planner, Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.rates import service as rates
from sutler.service.deployments.rates.schemas import RatesResource
from sutler.service.web.problems import responses

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])


@router.get("/{name}/rates", responses=responses(401, 403, 404, 422, 429, 503))
async def get_rates(services: Service, _reader: Reader, name: Name) -> RatesResource:
    """What the engines' metrics say of their rates. With `policy.learn_rates`, plans rest on it."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        return await rates.shown(connection, deployment, now=services.now())


@router.delete("/{name}/rates", status_code=204, responses=responses(401, 403, 404, 422, 429, 503))
async def forget_rates(services: Service, caller: Planner, name: Name) -> None:
    """Forget what was learnt, as after a change of the engines, and learn anew. The plan that holds stays."""
    async with services.changing(caller) as connection:
        deployment = await deployments.found(connection, name, lock=True)
        await rates.forget(connection, deployment, caller, now=services.now())
