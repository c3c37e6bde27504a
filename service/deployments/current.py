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
from sutler.service.db.projects import of_project
from sutler.service.deployments import repository
from sutler.service.deployments.repository import CurrentRow

MOST_COPIES: Final = 1_000  # chosen: some tens of kilobytes each; what is beyond is asked of the database again
_PREFIX: Final = deployment_topic("")
_Key = tuple[str, str]


class CurrentPlans:
    """Keeps them by deployment name and project. Many who ask for the same at once cause one question."""

    def __init__(self, engine: AsyncEngine, notices: Notices) -> None:
        self._engine, self._notices = engine, notices
        self._copies: OrderedDict[_Key, CurrentRow] = OrderedDict()
        self._asking: dict[_Key, asyncio.Task[CurrentRow | None]] = {}
        notices.listen(self._forget)

    async def get(self, name: str, project: str) -> CurrentRow | None:
        """The plan that holds; None without a deployment or a plan. Raises DatabaseError."""
        key = name, project
        copy = self._copies.get(key)
        if copy is not None:
            return copy
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._ask(*key))
            asking.add_done_callback(lambda done: self._asked(key, done))
        return await asyncio.shield(asking)

    async def _ask(self, name: str, project: str) -> CurrentRow | None:
        async with reading(of_project(self._engine, project)) as connection:
            return await repository.current(connection, name)

    def _asked(self, key: _Key, done: "asyncio.Task[CurrentRow | None]") -> None:
        """An answer that a notice has overtaken is not kept."""
        if self._asking.get(key) is not done:
            return
        del self._asking[key]
        found = None if done.cancelled() or done.exception() is not None else done.result()
        if found is not None and self._notices.connected:
            self._copies[key] = found
            if len(self._copies) > MOST_COPIES:
                self._copies.popitem(last=False)

    def _forget(self, topic: str | None) -> None:
        """Of a name, in every project: which one is meant, notices do not say."""
        if topic is None:
            self._copies.clear()
            self._asking.clear()
        elif topic.startswith(_PREFIX):
            name = topic.removeprefix(_PREFIX)
            for known in (self._copies, self._asking):
                for key in [key for key in known if key[0] == name]:
                    known.pop(key, None)
