"""The diff of two plans of a deployment: the one that was issued with the newer, or one that is made now."""

import asyncio
import json

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.repository import Deployment
from sutler.service.documents.fields import document_json
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import repository as plans
from sutler.service.plans.repository import PlanRecord
from sutler.service.plans.resources import SERVES
from sutler.service.web.errors import ConflictError
from sutler.service.web.state import Services


async def diff_of(services: Services, name: str, revision: int, from_revision: int | None = None) -> str:
    """A diff document, as JSON; from the plan that held before, unless another is named, or 0 for none at all.

    Raises NotFoundError, and ConflictError for a plan that serves nothing.
    """
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        after = await _serving(connection, deployment, revision)
        start = from_revision
        if start is None:
            start = await plans.serving_before(connection, deployment.id, revision) or 0
        before = await _serving(connection, deployment, start) if start else None
    issued = _stored(after, start)
    return issued if issued is not None else await asyncio.to_thread(_computed, before, after)


async def _serving(connection: AsyncConnection, deployment: Deployment, revision: int) -> PlanRecord:
    """A plan that serves.

    Raises NotFoundError; ConflictError for a plan that serves nothing, which would have everything stopped.
    """
    found = await deployments.plan_of(connection, deployment, revision)
    if found.status not in SERVES:
        reason = f"plan {revision} of {deployment.name} is {found.status} and runs nothing"
        remedy = f"name one that serves; `sutler deployments plan {deployment.name} --revision {revision}` says why"
        raise ConflictError(f"{reason}: {remedy}")
    return found


def _stored(after: PlanRecord, start: int) -> str | None:
    """The diff that was issued with the plan, which also knew what was held then; None: it is of another pair."""
    if after.diff is None or (json.loads(after.diff).get("from") or 0) != start:
        return None
    return after.diff


def _computed(before: PlanRecord | None, after: PlanRecord) -> str:
    old = None if before is None else PlanDocument.model_validate_json(before.document or "")
    new = PlanDocument.model_validate_json(after.document or "")
    planned = "the first plan" if before is None else f"revision {after.revision} instead of {before.revision}"
    return document_json(difference(old, new, reason=after.reason or planned))
