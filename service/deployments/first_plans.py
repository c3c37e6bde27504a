"""Deployments that could not be planned for want of a market are tried again, until their first plan is there."""

from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.queue import Queue
from sutler.service.deployments import repository
from sutler.service.plans import repository as plan_repository
from sutler.service.plans.repository import PLANS, Order

# Chosen: a poll may bring a market; each attempt costs a translation, but no search
PAUSE: Final = timedelta(seconds=15)
SCHEDULER: Final = "scheduler"


async def try_again(connection: AsyncConnection, queue: Queue, *, now: datetime) -> int:
    """Puts their plans into the queue; returns how many."""
    tried = 0
    for deployment in await repository.without_plan(connection, before=now - PAUSE):
        if await plan_repository.pending_of(connection, deployment.id) is not None:
            continue  # another worker was first, before the deployment was locked here
        kind = deployment.problem["objective"]["kind"]
        order = Order(uuid4(), deployment.problem, kind, SCHEDULER, None, deployment.id, deployment.name)
        await PLANS.add(connection, order, now)
        await queue.make_plan(connection, PLANS.task, order.id)
        tried += 1
    return tried
