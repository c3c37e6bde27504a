"""Reports of what is rented: checked, stored with their audit entry, compared with the plan that holds."""

from collections.abc import Collection, Iterable, Mapping
from math import fsum
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import costs
from sutler.service.deployments import repository as deployment_repository
from sutler.service.deployments import service as deployments
from sutler.service.deployments.holdings import lives_repository, repository
from sutler.service.deployments.holdings.comparison import (
    Comparison,
    beyond,
    carried_out,
    compared,
    counted,
    rented_by,
)
from sutler.service.deployments.holdings.lives import ends
from sutler.service.deployments.holdings.repository import HoldingsReport
from sutler.service.deployments.holdings.schemas import (
    HoldingDocument,
    HoldingsDocument,
    HoldingsResource,
    MachineKey,
)
from sutler.service.deployments.repository import CurrentRow, Deployment
from sutler.service.deployments.sharing import repository as sharing
from sutler.service.deployments.sharing.taken import OfferKey, is_one_machine
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.market.settled import last_places
from sutler.service.plans.parsed import parsed
from sutler.service.plans.resources import SERVES
from sutler.service.web.caller import Caller
from sutler.service.web.errors import ConflictError, NotYetError
from sutler.service.web.state import Services
from sutler.solver.catalog import load_gpus, resolve_gpu
from sutler.solver.errors import UnknownNameError

DEFAULT_CATALOG: Final = "default"


async def shown(services: Services, name: str) -> HoldingsResource:
    """The last report. Raises NotFoundError."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        reported = await repository.reported(connection, deployment.id)
        plan = await _plan(await deployment_repository.current(connection, name))
    return _resource(name, reported, plan)


async def report(services: Services, name: str, document: HoldingsDocument, caller: Caller) -> HoldingsResource:
    """Stores what is rented. Raises NotFoundError, DocumentError for GPUs that the deployment does not know."""
    async with services.changing(caller) as connection:
        deployment = await deployments.found(connection, name, lock=True)
        check_gpus(document.holdings, deployment)
        earlier = await repository.reported(connection, deployment.id)
        plan = await _plan(await deployment_repository.current(connection, name))
        lost = await _store(services, connection, deployment, plan, earlier, document.holdings, caller)
        reported = await repository.reported(connection, deployment.id)
    return _resource(name, reported, plan, lost=lost)


async def acknowledge(services: Services, name: str, revision: int | None, caller: Caller) -> HoldingsResource:
    """Stores that what the current plan rents is what is rented; what was held and stays is paid as before.

    Raises NotFoundError, NotYetError without a plan, ConflictError where it serves nothing or is not `revision`.
    """
    async with services.changing(caller) as connection:
        deployment = await deployments.found(connection, name, lock=True)
        current = await deployment_repository.current(connection, name)
        plan = await _plan(current)
        if current is None:
            raise NotYetError(f"{name} has no plan yet that could be carried out: ask again")
        if plan is None:
            raise ConflictError(f"the plan of {name} is {current.status}: {_says(name)} what is rented")
        if revision not in (None, plan.revision):
            remedy = f"carry that one out; {_says(name)} what else is rented"
            raise ConflictError(f"the current plan of {name} is revision {plan.revision}, not {revision}: {remedy}")
        earlier = await repository.reported(connection, deployment.id)
        rented = carried_out(plan, earlier.holdings or ())
        lost = await _store(services, connection, deployment, plan, earlier, rented, caller, revision=plan.revision)
        reported = await repository.reported(connection, deployment.id)
    return _resource(name, reported, plan, lost=lost)


def _says(name: str) -> str:
    return f"`sutler deployments holdings {name} FILE` (PUT /v1/deployments/{name}/holdings) says"


def check_gpus(holdings: tuple[HoldingDocument, ...], deployment: Deployment) -> None:
    """Raises DocumentError for GPUs that are neither the catalogue's nor the problem's own."""
    catalog = deployment.problem.get("catalog", DEFAULT_CATALOG)  # as it was checked when it was stored
    known = {*load_gpus(catalog), *deployment.problem.get("gpus", ())}
    unknown = [(i, holding.gpu) for i, holding in enumerate(holdings) if holding.gpu not in known]
    if unknown:
        raise DocumentError(
            FieldProblem(f"holdings[{i}].gpu", short_repr(gpu), _remedy(gpu, catalog)) for i, gpu in unknown
        )


def _remedy(gpu: str, catalog: str) -> str:
    try:
        hint = f"did you mean {resolve_gpu(gpu, catalog).slug}? "
    except UnknownNameError:
        hint = ""
    return f"is no GPU of the catalogue or of the deployment's problem; {hint}`sutler catalog gpus` lists all"


async def _store(
    services: Services,
    connection: AsyncConnection,
    deployment: Deployment,
    plan: PlanDocument | None,
    earlier: HoldingsReport,
    holdings: tuple[HoldingDocument, ...],
    caller: Caller,
    *,
    revision: int | None = None,
) -> tuple[HoldingDocument, ...]:
    """Stores the report, and returns what is lost by it. The same again makes the report fresh, and nothing else.

    `plan` is the one that holds; None: none that serves."""
    if earlier.holdings is not None and _in_order(earlier.holdings) == _in_order(holdings):
        await repository.confirm(connection, deployment.id, services.now())
        return ()
    now, before = services.now(), earlier.holdings or ()
    begun = counted(beyond(holdings, before))
    places = await connection.run_sync(last_places, {key[:3] for key in begun})
    await _check_not_held_twice(connection, deployment, begun, places)
    lost = beyond(before, holdings)
    await repository.put(connection, deployment.id, holdings, now)
    ended = ends(before, holdings, () if plan is None else rented_by(plan), now)
    await lives_repository.note(connection, deployment.id, begun=begun, ended=ended, places=places, now=now)
    usd_per_hour = _usd_per_hour(holdings)
    if earlier.holdings is None or usd_per_hour != _usd_per_hour(before):
        await costs.reported(connection, deployment, usd_per_hour)
    detail: dict[str, object] = {
        "machines": sum(holding.count for holding in holdings),
        "lost": sum(holding.count for holding in lost),
        "usd_per_hour": usd_per_hour,
        **({} if revision is None else {"revision": revision}),
    }
    action = "deployment.holdings" if revision is None else "deployment.ack"
    await audit.note(connection, caller, action, deployment.target, detail)
    return lost


async def _check_not_held_twice(
    connection: AsyncConnection,
    deployment: Deployment,
    begun: Collection[MachineKey],
    places: Mapping[OfferKey, OfferDocument],
) -> None:
    """Raises ConflictError for a certain machine that is newly reported here and held by another deployment."""
    await sharing.lock(connection)
    others = await sharing.held_by_others(connection, deployment.id, (key[:3] for key in begun))
    for provider, offer_id, contract, _gpu, gpus in begun:
        key = provider, offer_id, contract
        theirs = others.get(key, [])
        if key in places and theirs and _is_full(places[key], sum(count for _, count in theirs), gpus):
            known = dict.fromkeys(name for name, _ in theirs if name is not None)
            names = ", ".join(known) or "a deployment of another project"
            machine = f"{provider} {offer_id} ({contract})"
            says = _says(names) if known else "a report of that project says"
            remedy = f"a machine serves one deployment; {says} when it is given back there"
            raise ConflictError(f"{machine} is one machine, and {names} reports it as rented: {remedy}")


def _is_full(offer: OfferDocument, gpus_of_others: int, gpus: int) -> bool:
    """Whether a machine cannot be rented by others and by us; one that is rented by the GPU has room for several."""
    if offer.divisible:
        return offer.machine_gpus is not None and gpus_of_others + gpus > offer.machine_gpus
    return is_one_machine(offer)


def _in_order(holdings: Iterable[HoldingDocument]) -> list[str]:
    return sorted(holding.model_dump_json() for holding in holdings)


def _resource(
    name: str, reported: HoldingsReport, plan: PlanDocument | None, *, lost: tuple[HoldingDocument, ...] = ()
) -> HoldingsResource:
    held = reported.holdings
    difference = Comparison((), ()) if plan is None or held is None else compared(held, plan)
    return HoldingsResource(
        deployment=name,
        reported=held is not None,
        reported_at=reported.at,
        usd_per_hour=_usd_per_hour(held or ()),
        holdings=held or (),
        revision=None if plan is None else plan.revision,
        lost=lost,
        missing=difference.missing,
        unplanned=difference.unplanned,
    )


async def _plan(current: CurrentRow | None) -> PlanDocument | None:
    """The plan that holds, if it serves; else everything would look unplanned, and be given back."""
    if current is None or current.status not in SERVES:
        return None
    return await parsed(current.plan_id, current.document)


def _usd_per_hour(holdings: tuple[HoldingDocument, ...]) -> float:
    return fsum(holding.price_usd_per_hour * holding.count for holding in holdings)
