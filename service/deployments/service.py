"""Deployments: made, changed, deleted, each with the plans that this calls for, in one transaction."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.asynchronous import reading
from sutler.service.db.notices import deployment_topic, notify, plan_topic
from sutler.service.db.projects import enter
from sutler.service.db.queue import Queue
from sutler.service.deployments import costs, repository
from sutler.service.deployments.current import CurrentPlans
from sutler.service.deployments.repository import CurrentRow, Deployment
from sutler.service.deployments.schemas import DeploymentDocument, PolicyDocument, WokenResource
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.plans import plan_requests
from sutler.service.plans import repository as plan_repository
from sutler.service.plans.repository import PLANS, Order, PlanRecord
from sutler.service.plans.service import order_of
from sutler.service.web.caller import Caller
from sutler.service.web.errors import ChangedMeanwhileError, ConflictError, NotFoundError, NotYetError
from sutler.service.web.state import Services
from sutler.service.web.waiting import until

NOT_YET_RETRY_S: Final = 2.0  # chosen: few first plans take less, and asking costs little
# Filters that upgrades wrote into problems that did not say: the defaults which those were stored under.
OLD_FILTERS: Final[tuple[dict[str, Any], ...]] = ({"fit": "off"}, {"contracts": ["on_demand"], "fit": "off"})
OLD_POLICY: Final[dict[str, Any]] = {"lead_quantile": None}  # what they wrote into policies
# Chosen: a poll may bring a market; each attempt costs a translation, but no search
PAUSE: Final = timedelta(seconds=15)
SCHEDULER: Final = "scheduler"  # who asks for the plan then


async def create(
    services: Services,
    connection: AsyncConnection,
    name: str,
    document: DeploymentDocument,
    caller: Caller,
) -> None:
    """Makes a deployment with its first plan in the queue; its problem was checked before.

    Raises ConflictError for a taken name.
    """
    deployment_id = uuid4()
    problem, policy = _parts(document)
    is_new = await repository.add(
        connection, id=deployment_id, name=name, problem=problem, policy=policy, now=services.now()
    )
    if not is_new:
        remedy = f"PUT /v1/deployments/{name} changes it, another name makes another"
        raise ConflictError(f"there is a deployment {name} already: {remedy}")
    deployment = await found(connection, name, lock=True)
    await repository.begin_watch(connection, deployment.id)
    await order_plan(services, connection, deployment, document.problem, caller)
    await audit.note(connection, caller, "deployment.create", deployment.target)


async def change(
    services: Services,
    connection: AsyncConnection,
    deployment: Deployment,
    document: DeploymentDocument,
    caller: Caller,
) -> None:
    """Changes it. Another problem calls for a new plan, and the one that is being made for the old is given up."""
    problem, policy = _parts(document)
    if any(_with_filter(old, problem) == deployment.problem for old in OLD_FILTERS):
        problem = deployment.problem
    if {**OLD_POLICY, **policy} == deployment.policy:
        policy = deployment.policy
    if (problem, policy) == (deployment.problem, deployment.policy):
        return
    await repository.change(connection, deployment, problem=problem, policy=policy, now=services.now())
    await repository.touch(connection, deployment.id)
    if problem != deployment.problem:
        await _supersede(services, connection, deployment, "the deployment's problem was changed")
        await order_plan(services, connection, deployment, document.problem, caller)
    await audit.note(connection, caller, "deployment.update", deployment.target)


async def delete(services: Services, name: str, caller: Caller, *, if_match: str | None) -> None:
    """Deletes it; its plans stay in the list of plans. Raises NotFoundError, ChangedMeanwhileError."""
    async with services.changing(caller) as connection:
        deployment = await found(connection, name, lock=True)
        check_unchanged(deployment, if_match)
        await _supersede(services, connection, deployment, "the deployment was deleted")
        await costs.ends(connection, deployment)
        await repository.remove(connection, deployment, services.now())
        await audit.note(connection, caller, "deployment.delete", deployment.target)
        await notify(connection, deployment_topic(name))


async def replan(services: Services, name: str, caller: Caller) -> PlanRecord:
    """The plan that is being made, or a new one. Raises NotFoundError, TooManyWaitingError."""
    async with services.changing(caller) as connection:
        deployment = await found(connection, name, lock=True)
        pending = await plan_repository.pending_of(connection, deployment.id)
        if pending is not None:
            return pending
        document = validate(ProblemDocument, deployment.problem)
        order = await order_plan(services, connection, deployment, document, caller)
        await audit.note(connection, caller, "deployment.replan", deployment.target)
        return order


async def wake(services: Services, name: str, models: Sequence[str] | None, caller: Caller) -> WokenResource:
    """Has models served that sleep, as if there were a request for each; `models` None: all.

    Raises NotFoundError, DocumentError, and ConflictError where nothing may sleep.
    """
    async with services.changing(caller) as connection:
        deployment = await found(connection, name, lock=True)
        if policy_of(deployment).sleep is None:
            raise ConflictError(f"no model of {name} sleeps: policy.sleep (PUT /v1/deployments/{name}) lets them")
        known = [model.name for model in validate(ProblemDocument, deployment.problem).models]
        for model in models or ():
            if model not in known:
                raise DocumentError.of("models", f"is none of its models: {', '.join(known)}", value=model)
        woken, now = tuple(models or known), services.now()
        await repository.wake(connection, deployment.id, woken, now)
        await audit.note(connection, caller, "deployment.wake", deployment.target)
    return WokenResource(deployment=name, models=woken, at=now)


async def order_plan(
    services: Services,
    connection: AsyncConnection,
    deployment: Deployment,
    document: ProblemDocument,
    caller: Caller,
) -> PlanRecord:
    """Puts a plan for the deployment into the queue, in the caller's transaction."""
    order = order_of(document, caller)
    order = replace(order, deployment_id=deployment.id, deployment_name=deployment.name)
    if policy_of(deployment).sleep is not None:  # who asks for a plan wants all models served
        models = [model.name for model in document.models]
        await repository.wake(connection, deployment.id, models, services.now())
    await plan_requests.place(services, connection, PLANS, order, caller)
    return await plan_requests.stored(connection, PLANS, order.id)


async def found(connection: AsyncConnection, name: str, *, lock: bool = False) -> Deployment:
    """The deployment of this name. Raises NotFoundError."""
    deployment = await repository.find(connection, name, lock=lock)
    if deployment is None:
        raise NotFoundError(
            f"there is no deployment {name!r}: GET /v1/deployments (`sutler deployments list`) lists all"
        )
    return deployment


async def plan_of(connection: AsyncConnection, deployment: Deployment, revision: int) -> PlanRecord:
    """One plan of the deployment. Raises NotFoundError."""
    record = await plan_repository.find_revision(connection, deployment.id, revision)
    if record is None:
        listing = f"GET /v1/deployments/{deployment.name}/plans lists all"
        raise NotFoundError(f"{deployment.name} has no plan {revision}: {listing}")
    return record


async def current_plan(
    services: Services, name: str, *, after: int | None = None, unlike: frozenset[str] = frozenset(), wait_s: float
) -> CurrentRow | None:
    """The plan that holds, if its revision is above `after` and its ETag is none of `unlike`; else, None.

    An `after` above all revisions is of an earlier deployment of that name, whose plan is no longer the one.

    Waits up to `wait_s` for such a plan. Raises NotFoundError, NotYetError while there is no plan at all, and what
    the last attempt came to where nothing is being made.
    """

    async def look() -> CurrentRow | None:
        current = await services.part(CurrentPlans).get(name, services.project)
        if current is None:
            await _expect_one(services, name)
            return None
        return current if is_news(current) else None

    def is_news(current: CurrentRow) -> bool:
        is_after = after is None or not current.revision <= after <= current.newest_revision
        return is_after and etag_of(current) not in unlike

    wanted = await until(services.notices, deployment_topic(name), look, wait_s=wait_s)
    if wanted is not None:
        return wanted
    current = await services.part(CurrentPlans).get(name, services.project)
    if current is None:
        detail = f"the first plan of {name} is being made: ask again, or wait for it with ?wait_s=30"
        raise NotYetError(detail, retry_after_s=NOT_YET_RETRY_S)
    return current if is_news(current) else None  # it may just have come


async def _expect_one(services: Services, name: str) -> None:
    """Raises NotFoundError without a deployment, and where no plan is under way the last attempt's failure."""
    async with reading(services.engine) as connection:
        deployment = await found(connection, name)
        last = await plan_repository.last_of(connection, deployment.id)
    if last is not None and not last.is_pending and last.failure is not None:
        raise NotYetError(f"{name} has no plan: the last attempt ended with: {last.failure['detail']}")


def etag_of(current: CurrentRow) -> str:
    """The ETag of a plan, which never changes once it is there."""
    return f'"{current.plan_id}"'


def version_etag(deployment: Deployment) -> str:
    """The ETag of a deployment, which changes with problem and policy, not with plans."""
    return f'"{deployment.id}.{deployment.version}"'


def check_unchanged(deployment: Deployment, if_match: str | None) -> None:
    """Raises ChangedMeanwhileError where the caller knows another version."""
    if if_match is None or if_match.strip() == "*":
        return
    if version_etag(deployment) not in {tag.strip() for tag in if_match.split(",")}:
        detail = f"{deployment.name} is at version {deployment.version} now: read it again, then send your change"
        raise ChangedMeanwhileError(detail)


async def _supersede(services: Services, connection: AsyncConnection, deployment: Deployment, why: str) -> None:
    failure = plan_requests.cancelled(why)
    given_up = await plan_repository.cancel_of(connection, deployment.id, services.now(), failure=failure)
    for plan_id in given_up:
        await notify(connection, plan_topic(plan_id))


def _parts(document: DeploymentDocument) -> tuple[dict[str, Any], dict[str, Any]]:
    """Problem and policy as they are stored: as the caller gave them, without defaults, which may improve."""
    problem = document.problem.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return problem, document.policy.model_dump(mode="json", exclude_unset=True)


def _with_filter(old: dict[str, Any], problem: dict[str, Any]) -> dict[str, Any]:
    """The problem as an upgrade wrote it where it did not say: the same again is no change of a deployment."""
    market = problem.get("market", {})
    return {**problem, "market": {**market, "filter": {**old, **market.get("filter", {})}}}


def policy_of(deployment: Deployment) -> PolicyDocument:
    """Returns the deployment's policy, with defaults for what it leaves out."""
    return validate(PolicyDocument, deployment.policy)


async def try_again(connection: AsyncConnection, queue: Queue, *, now: datetime) -> int:
    """Puts plans of deployments that found no market into the queue, until their first plan is there; how many."""
    tried = 0
    for deployment in await repository.without_plan(connection, before=now - PAUSE):
        if await plan_repository.pending_of(connection, deployment.id) is not None:
            continue  # another worker was first, before the deployment was locked here
        await enter(connection, deployment.project)
        kind = deployment.problem["objective"]["kind"]
        order = Order(uuid4(), deployment.problem, kind, SCHEDULER, None, deployment.id, deployment.name)
        await PLANS.add(connection, order, now)
        await queue.make_plan(connection, PLANS.task, order.id, project=deployment.project)
        tried += 1
    return tried
