"""Where plans come from: a deployment of a running service, or a file. Both wait for what comes next, for ever."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from sutler.service.client import calls
from sutler.service.client.asynchronous import AsyncClient
from sutler.service.client.errors import RefusedError, ServiceError
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.routers.watched import Watched

RETRY_S: Final = 5.0  # chosen: a service that restarts is seen soon, one that is away is not pestered
TOO_MANY: Final = 429
Trouble = Callable[[str], None]
"""Takes what is amiss, or nothing once it is well."""


async def of_deployment(client: AsyncClient, name: str, trouble: Trouble) -> AsyncIterator[PlanDocument]:
    """Yields the plan that holds, then each new one. A service that is away is waited for.

    Raises RefusedError where it does not answer this caller, or knows no such deployment, before the first plan.
    """
    revision: int | None = None
    while True:
        try:
            plan = await client.ask(calls.current_plan(name, after=revision, wait_s=calls.WAIT_S))
        except ServiceError as error:
            is_refusal = isinstance(error, RefusedError) and error.status < 500 and error.status != TOO_MANY
            if is_refusal and revision is None:
                raise
            trouble(f"no plan from the service, the weights stay: {error}")
            await asyncio.sleep(RETRY_S)
            continue
        trouble("")
        if plan is not None:
            revision = plan.revision
            yield plan


async def of_file(file: Watched[PlanDocument], every_s: float, trouble: Trouble) -> AsyncIterator[PlanDocument]:
    """Yields the plan in a file, then what it is changed to. Raises DocumentError before the first."""
    is_first = True
    while True:
        try:
            plan = file.news()
        except DocumentError as error:
            if is_first:
                raise
            trouble(f"no plan from the file, the weights stay: {error.detail}")
        else:
            if plan is not None:
                trouble("")
                is_first = False
                yield plan
        await asyncio.sleep(every_s)
