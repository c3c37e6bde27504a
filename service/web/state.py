"""What all endpoints work with, put together in service/main.py and kept by the application."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar, cast, runtime_checkable

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.asynchronous import begun
from sutler.service.db.notices import Notices, told
from sutler.service.db.projects import of_project
from sutler.service.db.queue import Queue
from sutler.service.settings import ServiceSettings
from sutler.service.web.caller import Caller, Principal
from sutler.service.web.metrics import Metrics

P = TypeVar("P")


@runtime_checkable
class Divided(Protocol):
    """A part of which each project has its own."""

    def of(self, project: str) -> object:
        """The same for this project."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What features share, and the `parts` that single features brought, each by its class.

    `engine` is for what only reads, `changes` for the rest: neither uses up the connections of the other.
    `count_change` counts a change against its caller's limit. `needs_key`: whether callers must show a key; without,
    all are the local user. `project`: whose rows both engines reach; empty: that is still to be said.
    """

    engine: AsyncEngine
    changes: AsyncEngine
    queue: Queue
    notices: Notices
    settings: ServiceSettings
    metrics: Metrics
    count_change: Callable[[AsyncConnection, Principal], Awaitable[None]]
    needs_key: bool
    parts: Mapping[type, Any]
    project: str = ""
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _of: dict[str, "Services"] = field(init=False, repr=False, default_factory=dict)

    @asynccontextmanager
    async def changing(self, caller: Caller) -> AsyncIterator[AsyncConnection]:
        """The transaction of a change, which is counted. Raises TooManyRequestsError, DatabaseError."""
        async with begun(self.changes) as connection:
            await self.count_change(connection, caller.principal)
            yield connection
            topics = told(connection)
        for topic in topics:
            self.notices.arrived(topic)

    def of(self, project: str) -> "Services":
        """The same for callers of this project; made once."""
        if project not in self._of:
            engine, changes = of_project(self.engine, project), of_project(self.changes, project)
            divided = {kind: part.of(project) for kind, part in self.parts.items() if isinstance(part, Divided)}
            parts = {**self.parts, **divided}
            self._of[project] = replace(self, engine=engine, changes=changes, project=project, parts=parts)
        return self._of[project]

    def part(self, kind: type[P]) -> P:
        """The one of this class. Raises KeyError where the composition root gave none, which is a defect."""
        return cast(P, self.parts[kind])


def services_of(request: Request) -> Services:
    """A dependency: the services of the application that serves this request, before it is known for whom."""
    return cast(Services, request.app.state.services)


ForAnyone = Annotated[Services, Depends(services_of)]
"""What endpoints work with that need no key; `Service` of auth/dependency.py and pages/route.py is the others'."""
