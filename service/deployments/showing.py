"""Deployments as the API shows them: put together from the store, one or in lists."""

import asyncio
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments import service as deployments
from sutler.service.deployments.holdings import repository as holdings
from sutler.service.deployments.holdings.carrying_out import carry_out
from sutler.service.deployments.replanning import repository as watching
from sutler.service.deployments.replanning.endpoints import watch_resource
from sutler.service.deployments.repository import Deployment, Listed, ListedPlan, ListedWatch
from sutler.service.deployments.schemas import (
    CurrentPlanResource,
    DeploymentResource,
    DeploymentSummary,
    LastFailureResource,
    PendingPlanResource,
)
from sutler.service.deployments.watch_schema import WatchResource, WatchSummary
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import repository as plan_repository
from sutler.service.plans.repository import PLANS, PlanRecord
from sutler.service.plans.resources import SERVES


def url_of(name: str) -> str:
    """Of a deployment."""
    return f"/v1/deployments/{name}"


async def resource(connection: AsyncConnection, deployment: Deployment, now: datetime) -> DeploymentResource:
    """With its current plan, the one that is being made, and how it stands."""
    held = None if deployment.plan_id is None else await PLANS.find(connection, deployment.plan_id)
    newest = await plan_repository.find_revision(connection, deployment.id, deployment.revision)
    last = await plan_repository.last_of(connection, deployment.id)
    pending = await plan_repository.pending_of(connection, deployment.id)
    return DeploymentResource(
        id=deployment.id,
        name=deployment.name,
        version=deployment.version,
        problem=deployment.problem,
        policy=deployments.policy_of(deployment),
        created_at=deployment.created_at,
        updated_at=deployment.updated_at,
        plan=_issued(held),
        latest=_issued(newest),
        pending=None if pending is None else PendingPlanResource.model_validate(pending, from_attributes=True),
        last_failure=None if last is None or last.failure is None else _failure(last),
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
    carried_out = carry_out(
        await asyncio.to_thread(PlanDocument.model_validate_json, held.document),
        (await holdings.reported(connection, deployment.id)).holdings,
        issued_at=held.finished_at,
        patience_s=deployments.policy_of(deployment).carry_out_s,
        now=now,
    )
    return found.model_copy(update={"carry_out": carried_out})


def _issued(record: PlanRecord | None) -> CurrentPlanResource | None:
    if record is None or record.revision is None or record.finished_at is None:
        return None
    return CurrentPlanResource(
        id=record.id,
        revision=record.revision,
        status=record.status,
        cost_usd_per_hour=record.cost_usd_per_hour,
        issued_at=record.finished_at,
        url=record.url,
    )


def _failure(record: PlanRecord) -> LastFailureResource:
    return LastFailureResource(
        id=record.id, status=record.status, problem=record.failure, finished_at=record.finished_at
    )


def summary(listed: Listed) -> DeploymentSummary:
    """One line of a list."""
    deployment, watch = listed.deployment, listed.watch
    return DeploymentSummary(
        id=deployment.id,
        name=deployment.name,
        version=deployment.version,
        revision=deployment.revision,
        plan_id=deployment.plan_id,
        plan=None if listed.plan is None else _listed_plan(listed.plan),
        watch=None if watch is None else _short(watch),
        created_at=deployment.created_at,
        updated_at=deployment.updated_at,
        url=url_of(deployment.name),
    )


def _listed_plan(plan: ListedPlan) -> CurrentPlanResource:
    return CurrentPlanResource(
        id=plan.id,
        revision=plan.revision,
        status=plan.status,
        cost_usd_per_hour=plan.cost_usd_per_hour,
        issued_at=plan.issued_at,
        url=f"/v1/plans/{plan.id}",
    )


def _short(watch: ListedWatch) -> WatchSummary:
    state = watch.state
    return WatchSummary(status=state["status"], feed=state.get("feed", "none"), looked_at=watch.looked_at)
