"""What a finished plan means for its deployment, in the transaction that stores it.

A plan that serves nothing never replaces one that does: who reads the current plan would tear down what runs. It is
in the history, and the event `plan.infeasible` says so. Only where nothing of that one is held, and its machines go
to others, does it.
"""

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.notices import deployment_topic, notify
from sutler.service.db.queue import Queue
from sutler.service.deployments import costs, repository
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.holdings import repository as holdings
from sutler.service.deployments.holdings.comparison import held_by
from sutler.service.deployments.repository import Deployment, touch
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans.resources import SERVES
from sutler.service.webhooks.service import announce


async def locked(connection: AsyncConnection, deployment_id: UUID | None) -> Deployment | None:
    """The deployment of a plan, which nobody else changes until the end of the transaction."""
    return None if deployment_id is None else await repository.find_by_id(connection, deployment_id, lock=True)


async def issue(
    connection: AsyncConnection,
    queue: Queue,
    deployment: Deployment,
    plan: PlanDocument,
    *,
    reason: str,
    diff: DiffDocument | None,
    gives_up: bool = False,
) -> None:
    """Makes it the current plan, unless it serves nothing and there is one that does.

    `gives_up`: nothing of that one is held, and its machines go to others: it holds no more in any case.

    `diff` is to the plan that held before; None: there was none, or this one does not take its place.
    """
    serves = plan.status in SERVES
    holds = serves or gives_up or not await _has_serving(connection, deployment)
    await repository.set_current(connection, deployment, revision=plan.revision, plan_id=plan.id if holds else None)
    if holds:
        await costs.plan_holds(connection, deployment, plan.id, (plan.cost_usd_per_hour or 0.0) if serves else None)
    await announce(
        connection,
        queue,
        event="plan.issued" if serves else "plan.infeasible",
        data={
            "deployment": deployment.name,
            "plan": {"id": str(plan.id), "revision": plan.revision, "status": plan.status, "url": _url(plan.id)},
            "objective": plan.objective.model_dump(mode="json"),
            "cost_usd_per_hour": plan.cost_usd_per_hour,
            "reason": reason,
            "diff": None if diff is None else _summary(diff),
        },
    )
    if holds:
        await holdings.plan_issued(connection, deployment.id, counted_on=held_by(plan))
    else:
        await touch(connection, deployment.id)
    await notify(connection, deployment_topic(deployment.name))


def _summary(diff: DiffDocument) -> dict[str, Any]:
    """How much there is to do."""
    return {
        "from": diff.from_,
        "keep": sum(item.count for item in diff.keep),
        "start": sum(item.count for item in diff.start),
        "stop": sum(item.count for item in diff.stop if item.held),
        "reroute": len(diff.reroute),
        "least_carried_fraction": min((step.carried_fraction for step in diff.capacity), default=None),
    }


async def failed(
    connection: AsyncConnection, queue: Queue, deployment: Deployment, plan_id: UUID, failure: dict[str, Any]
) -> None:
    """Tells who waits for the deployment's plan that there will be none."""
    plan = {"id": str(plan_id), "revision": None, "status": "failed", "url": _url(plan_id)}
    data = {"deployment": deployment.name, "plan": plan, "problem": failure}
    await announce(connection, queue, event="plan.failed", data=data)
    await notify(connection, deployment_topic(deployment.name))


async def _has_serving(connection: AsyncConnection, deployment: Deployment) -> bool:
    if deployment.plan_id is None:
        return False
    return await repository.status_of(connection, deployment.plan_id) in SERVES


def _url(plan_id: UUID) -> str:
    return f"/v1/plans/{plan_id}"
