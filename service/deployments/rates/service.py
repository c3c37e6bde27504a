"""The rates that a deployment learns of its own engines: read with each look, shown, forgotten when asked."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.deployments.rates import repository
from sutler.service.deployments.rates.applying import Lesson, learn
from sutler.service.deployments.rates.learning import Learnt, remembered
from sutler.service.deployments.rates.schemas import RatesResource, layout_resources, unlearnt_resources
from sutler.service.deployments.repository import Deployment, touch
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.plans.parsed import parsed
from sutler.service.plans.repository import PLANS
from sutler.service.profiles.references import with_calibration
from sutler.service.web.caller import Caller

LOOKED_BACK: Final = timedelta(hours=1)  # chosen: of what was told before anything was learnt


async def lesson(
    connection: AsyncConnection,
    deployment_id: UUID,
    stored: dict[str, Any],
    *,
    problem: ProblemDocument,
    plan: PlanDocument,
    policy: PolicyDocument,
    now: datetime,
) -> Lesson:
    """Learns what engines have told since the last time. `problem` has its calibration in it."""
    learnt = remembered(stored)
    models = [model.name for model in problem.models]
    since = learnt.until or now - LOOKED_BACK
    told = await repository.told_since(connection, deployment_id, models=models, since=since)
    if not told and not learnt.cells:
        return Lesson(learnt)
    return await asyncio.to_thread(learn, learnt, told, problem, plan, policy, now)


async def shown(connection: AsyncConnection, deployment: Deployment, *, now: datetime) -> RatesResource:
    """What was learnt of each layout, and of which replicas nothing can be."""
    policy = validate(PolicyDocument, deployment.policy)
    learnt = remembered(await repository.stored(connection, deployment.id))
    found = RatesResource(
        deployment=deployment.name,
        applied=policy.learn_rates,
        since=learnt.since,
        until=learnt.until,
        left_out=learnt.left_out,
        layouts=[],
        not_learnt=[],
    )
    record = None if deployment.plan_id is None else await PLANS.find(connection, deployment.plan_id)
    if record is None or record.document is None:
        return found
    plan = await parsed(record.id, record.document)
    try:
        problem = await with_calibration(connection, validate(ProblemDocument, deployment.problem))
    except DocumentError:  # its calibration is gone: looks say so
        return found
    known = await asyncio.to_thread(learn, learnt, (), problem, plan, policy, now)
    return found.model_copy(
        update={
            "layouts": layout_resources(known.learnt, known.shifts, now),
            "not_learnt": unlearnt_resources(known.not_learnt),
        }
    )


async def forget(connection: AsyncConnection, deployment: Deployment, caller: Caller, *, now: datetime) -> None:
    """Forgets all that was learnt, and learns anew from now on."""
    empty = Learnt(since=now, until=now).model_dump(mode="json")
    await repository.keep(connection, deployment.id, empty)
    await touch(connection, deployment.id)
    await audit.note(connection, caller, "deployment.forget_rates", deployment.target, {})
