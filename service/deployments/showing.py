"""Deployments as the API shows them: put together from the store, one or in lists."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from math import fsum
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments import service as deployments
from sutler.service.deployments.holdings import repository as holdings
from sutler.service.deployments.holdings.comparison import carry_out, counted, rented_by
from sutler.service.deployments.holdings.schemas import HoldingDocument, MachineKey
from sutler.service.deployments.replanning import repository as watching
from sutler.service.deployments.replanning.endpoints import watch_resource
from sutler.service.deployments.repository import Deployment, Listed
from sutler.service.deployments.schemas import (
    CurrentPlanResource,
    DeploymentResource,
    DeploymentSummary,
    LastFailureResource,
    PendingPlanResource,
)
from sutler.service.deployments.watch_schema import WatchResource, WatchSummary
from sutler.service.plans import repository as plan_repository
from sutler.service.plans.parsed import parsed
from sutler.service.plans.repository import PLANS, PlanRecord
from sutler.service.plans.resources import SERVES


def url_of(name: str) -> str:
    """The URL of a deployment."""
    return f"/v1/deployments/{name}"


async def resource(connection: AsyncConnection, deployment: Deployment, now: datetime) -> DeploymentResource:
    """A deployment with its current plan, the one that is being made, and how it stands."""
    held = None if deployment.plan_id is None else await PLANS.find(connection, deployment.plan_id)
    newest = await plan_repository.find_revision(connection, deployment.id, deployment.revision)
    last = await plan_repository.last_of(connection, deployment.id)
    pending = await plan_repository.pending_of(connection, deployment.id)
    failed = None
    if last is not None and last.failure is not None:
        failed = LastFailureResource(
            id=last.id, status=last.status, problem=last.failure, finished_at=last.finished_at
        )
    return DeploymentResource(
        **_common(deployment),
        problem=deployment.problem,
        policy=deployments.policy_of(deployment),
        plan=_issued(held),
        latest=_issued(newest),
        pending=None if pending is None else PendingPlanResource.model_validate(pending, from_attributes=True),
        last_failure=failed,
        watch=await _watch(connection, deployment, held, now),
    )


async def _watch(
    connection: AsyncConnection, deployment: Deployment, held: PlanRecord | None, now: datetime
) -> WatchResource | None:
    """What the last look found, and how far the plan is carried out now."""
    found = watch_resource(await watching.record(connection, deployment.id))
    if (
        found is None
        or held is None
        or held.document is None
        or held.finished_at is None
        or held.status not in SERVES
    ):
        return found
    plan = await parsed(held.id, held.document)
    carried_out = carry_out(
        counted(rented_by(plan)),
        (await holdings.reported(connection, deployment.id)).holdings,
        revision=plan.revision,
        issued_at=held.finished_at,
        patience_s=deployments.policy_of(deployment).carry_out_s,
        now=now,
    )
    return found.model_copy(update={"carry_out": carried_out})


def _issued(record: PlanRecord | None) -> CurrentPlanResource | None:
    if record is None or record.revision is None or record.finished_at is None:
        return None
    cost = record.cost_usd_per_hour
    return CurrentPlanResource.of(record.id, record.revision, record.status, cost, record.finished_at)


def _common(deployment: Deployment) -> dict[str, Any]:
    """What a deployment and its line in a list both say."""
    return {name: getattr(deployment, name) for name in ("id", "name", "version", "created_at", "updated_at")}


def summary(listed: Listed, now: datetime) -> DeploymentSummary:
    """One line of a list."""
    deployment, plan = listed.deployment, listed.plan
    held = holdings.documents_of(listed.holdings)
    return DeploymentSummary(
        **_common(deployment),
        revision=deployment.revision,
        plan_id=deployment.plan_id,
        plan=plan,
        pending=listed.pending,
        models=tuple(model["name"] for model in deployment.problem["models"]),
        objective=listed.objective,
        relative_gap=listed.relative_gap,
        held_usd_per_hour=None if held is None else fsum(one.price_usd_per_hour * one.count for one in held),
        watch=_watch_summary(listed, held, now) if listed.state else None,
        url=url_of(deployment.name),
    )


def _watch_summary(listed: Listed, held: Sequence[HoldingDocument] | None, now: datetime) -> WatchSummary:
    plan, state = listed.plan, listed.state or {}
    carried_out = None
    if plan is not None and plan.status in SERVES:
        planned: Counter[MachineKey] = Counter()
        for one in listed.rentals:
            planned[one.provider, one.offer_id, one.contract, one.gpu, one.gpus] += one.count
        patience_s = deployments.policy_of(listed.deployment).carry_out_s
        carried_out = carry_out(
            planned, held, revision=plan.revision, issued_at=plan.issued_at, patience_s=patience_s, now=now
        )
    told = {"feed": "none", "load_multiple": None, "drifts": (), **state}
    known = {name: told[name] for name in WatchSummary.model_fields if name in told}
    return WatchSummary.model_validate({**known, "looked_at": listed.looked_at, "carry_out": carried_out})
