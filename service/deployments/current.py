"""The current plans, kept at hand: they are asked for far more often than they change.

A notice drops the copy the moment a new plan is committed, in every API process. While notices may be missed, every
request asks the database.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.asynchronous import reading
from sutler.service.db.notices import Notices, deployment_topic
from sutler.service.deployments import repository
from sutler.service.deployments.repository import CurrentRow

MOST_COPIES: Final = 1_000  # chosen: some tens of kilobytes each; what is beyond is asked of the database again
_PREFIX: Final = deployment_topic("")


class CurrentPlans:
    """Keeps them by deployment name. Many who ask for the same at once cause one question to the database."""

    def __init__(self, engine: AsyncEngine, notices: Notices) -> None:
        self._engine, self._notices = engine, notices
        self._copies: OrderedDict[str, CurrentRow] = OrderedDict()
        self._asking: dict[str, asyncio.Task[CurrentRow | None]] = {}
        notices.listen(self._forget)

    async def get(self, name: str) -> CurrentRow | None:
        """The plan that holds; None without a deployment or a plan. Raises DatabaseError."""
        copy = self._copies.get(name)
        if copy is not None:
            return copy
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.ensure_future(self._ask(name))
            asking.add_done_callback(lambda done: self._asked(name, done))
        return await asyncio.shield(asking)

    async def _ask(self, name: str) -> CurrentRow | None:
        async with reading(self._engine) as connection:
            return await repository.current(connection, name)

    def _asked(self, name: str, done: "asyncio.Task[CurrentRow | None]") -> None:
        """An answer that a notice has overtaken is not kept."""
        if self._asking.get(name) is not done:
            return
        del self._asking[name]
        found = None if done.cancelled() or done.exception() is not None else done.result()
        if found is not None and self._notices.connected:
            self._copies[name] = found
            if len(self._copies) > MOST_COPIES:
                self._copies.popitem(last=False)

    def _forget(self, topic: str | None) -> None:
        if topic is None:
            self._copies.clear()
            self._asking.clear()
        elif topic.startswith(_PREFIX):
            self._copies.pop(topic.removeprefix(_PREFIX), None)
            self._asking.pop(topic.removeprefix(_PREFIX), None)
