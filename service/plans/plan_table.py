"""Plans of any kind in the store: asked for, found, listed, cancelled. Who may make one is in claims.py.

Flow: PLANS (repository.py), OFFLINE_PLANS (service/offline/repository.py) and those of service/studies/repository.py
are one PlanTable each, and all that serves every kind works on them: plan_requests.py, plan_responses.py,
plan_endpoints.py, service/workers/attempts.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from math import inf
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Select, Text, cast, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.plans import claims
from sutler.service.plans.claims import MADE_BY, Table
from sutler.service.plans.resources import PENDING
from sutler.service.web.paging import Before, newest_first
from sutler.service.web.resource import Resource

UNLISTED = frozenset({"document", "progress", "diff"})


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan in any state; `document` is its JSON once it is there, `failure` the problem if it never will be.

    Each kind of plan has a class of its own: `noun` is what messages call one, `path` where all are; `job` is what
    callers get of a plan that is not there, `summary` a line of a list, both filled from attributes of the record.
    """

    noun: ClassVar[str]
    path: ClassVar[str]
    job: ClassVar[type[Resource]]
    summary: ClassVar[type[Resource]]

    id: UUID
    status: str
    document: str | None
    failure: dict[str, Any] | None
    objective: str
    relative_gap: float | None
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    solve_seconds: float | None

    @property
    def is_pending(self) -> bool:
        return self.status in PENDING

    @property
    def problem(self) -> dict[str, Any] | None:
        return self.failure

    @property
    def url(self) -> str:
        return f"{self.path}/{self.id}"


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """A plan to be made; each kind adds the other columns that are known from the start."""

    id: UUID

    @property
    def time_limit_s(self) -> float:
        """For how long it is made at most, as far as that is known."""
        return inf


R = TypeVar("R", bound=StoredPlan)


@dataclass(frozen=True, slots=True)
class PlanTable(Generic[R]):
    """All plans of one kind, which the jobs of the queue with this `task` make; those whose columns are `only` so."""

    task: str
    record: type[R]
    only: Mapping[str, str] = field(default_factory=dict)

    @property
    def row(self) -> Table:
        return MADE_BY[self.task]

    async def add(self, connection: AsyncConnection, order: PlanOrder, now: datetime) -> None:
        values = {field.name: getattr(order, field.name) for field in fields(order)}
        await connection.execute(insert(self.row).values(created_at=now, **values))

    async def find(self, connection: AsyncConnection, plan_id: UUID) -> R | None:
        return await self._first(connection, self._whole().where(self.row.id == plan_id))

    async def newest(self, connection: AsyncConnection, *wanted: ColumnElement[bool]) -> R | None:
        """The plan that was asked for last of those wanted."""
        found = self._whole().where(*wanted).order_by(self.row.created_at.desc()).limit(1)
        return await self._first(connection, found)

    async def asked(self, connection: AsyncConnection, plan_id: UUID, column: str) -> str | None:
        """What the plan is for, which this column keeps, as JSON and as it was given."""
        wanted = self._mine(select(cast(getattr(self.row, column), Text))).where(self.row.id == plan_id)
        found: str | None = await connection.scalar(wanted)
        return found

    async def page(
        self, connection: AsyncConnection, *, limit: int, before: Before | None = None, **equal: object
    ) -> list[R]:
        """The newest first, without documents; only those whose columns are `equal` to what is not None there."""
        row = self.row
        wanted = select(*(getattr(row, field.name) for field in fields(self.record) if field.name not in UNLISTED))
        wanted = newest_first(self._mine(wanted), row.created_at, row.id, limit=limit, before=before)
        wanted = wanted.where(*(getattr(row, name) == value for name, value in equal.items() if value is not None))
        return [self._record(found._mapping) for found in await connection.execute(wanted)]

    async def cancel(
        self, connection: AsyncConnection, plan_id: UUID, now: datetime, *, failure: dict[str, Any]
    ) -> bool:
        """Whether it was waited for, and is cancelled."""
        return bool(await claims.cancel(connection, self.row, self.row.id == plan_id, now, failure=failure))

    def _whole(self) -> Select[Any]:
        return self._mine(select(*(getattr(self.row, field.name) for field in fields(self.record))))

    def _mine(self, wanted: Select[Any]) -> Select[Any]:
        return wanted.where(*(getattr(self.row, name) == value for name, value in self.only.items()))

    async def _first(self, connection: AsyncConnection, wanted: Select[Any]) -> R | None:
        found = (await connection.execute(wanted)).one_or_none()
        return None if found is None else self._record(found._mapping)

    def _record(self, values: Any) -> R:
        return self.record(**{field.name: values.get(field.name) for field in fields(self.record)})
