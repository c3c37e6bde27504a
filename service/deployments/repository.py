"""Deployments in the store. Whoever learns that something has happened to one touches it, and a look follows."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import JSON, Row, Select, cast, delete, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.db.watch_tables import RentalLifeRow, WatchRow
from sutler.service.deployments.schemas import CurrentPlanResource
from sutler.service.plans.resources import PENDING, PlanStatus

_OF_PLAN: Final[tuple[Any, ...]] = (
    PlanRow.id,
    PlanRow.revision,
    PlanRow.status,
    PlanRow.cost_usd_per_hour,
    PlanRow.finished_at,
    PlanRow.objective,
    PlanRow.relative_gap,
)
_OF_WATCH: Final[tuple[Any, ...]] = (WatchRow.state, WatchRow.looked_at, WatchRow.holdings)
_PENDING: Final = aliased(PlanRow)
_PENDING_STATUS: Final = (
    select(_PENDING.status)
    .where(_PENDING.deployment_id == DeploymentRow.id, _PENDING.status.in_(PENDING))
    .order_by(_PENDING.created_at.desc())
    .limit(1)
    .scalar_subquery()
)
_WITHOUT_PLAN: Final = text("""
    SELECT d.id FROM deployment d WHERE d.plan_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM plan p WHERE p.deployment_id = d.id AND p.status IN ('queued', 'running'))
    AND (SELECT p.failure ->> 'status' = '503' AND p.finished_at < :before
         FROM plan p WHERE p.deployment_id = d.id ORDER BY p.created_at DESC LIMIT 1)
    ORDER BY d.updated_at LIMIT 100 FOR UPDATE OF d SKIP LOCKED
""")

RETAINED: Final = """
    SELECT d.id FROM deployment d JOIN retention r ON r.project = d.project WHERE r.kind = :kind
"""
"""Deployments of projects whose operator said how long what is of this kind is kept."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A standing problem; `revision` counts its plans, `plan_id` is the one that holds."""

    id: UUID
    project: str
    name: str
    version: int
    problem: dict[str, Any]
    policy: dict[str, Any]
    plan_id: UUID | None
    revision: int
    created_at: datetime
    updated_at: datetime

    @property
    def target(self) -> str:
        """What the audit log calls it."""
        return f"deployment/{self.name}"


@dataclass(frozen=True, slots=True)
class CurrentRow:
    """The plan that holds, and of which deployment; `newest_revision` may be of one that serves nothing."""

    deployment_id: UUID
    plan_id: UUID
    revision: int
    newest_revision: int
    status: PlanStatus
    document: str


@dataclass(frozen=True, slots=True)
class Rented:
    """Machines of one offer that a plan rents."""

    provider: str
    offer_id: str
    contract: str
    gpu: str
    gpus: int
    count: int


_rentals: Final[OrderedDict[UUID, tuple[Rented, ...]]] = OrderedDict()
PAGE: Final = 1_000
MOST_REMEMBERED: Final = 5_000  # chosen: plans whose rentals are remembered, a few kB each


@dataclass(frozen=True, slots=True)
class Listed:
    """A deployment as in lists: the plan that holds with its `rentals`, the status of one that is being made, what
    the last look found, and what was reported as rented; None for what there is not yet."""

    deployment: Deployment
    pending: PlanStatus | None
    plan: CurrentPlanResource | None
    objective: str | None
    relative_gap: float | None
    rentals: tuple[Rented, ...]
    state: dict[str, Any] | None
    looked_at: datetime | None
    holdings: list[dict[str, Any]] | None


_COLUMNS: Final[tuple[Any, ...]] = tuple(getattr(DeploymentRow, name) for name in Deployment.__slots__)


async def add(
    connection: AsyncConnection,
    *,
    id: UUID,
    name: str,
    problem: dict[str, Any],
    policy: dict[str, Any],
    now: datetime,
) -> bool:
    """Adds a deployment; False where the name is taken."""
    made = insert(DeploymentRow).values(
        id=id, name=name, problem=problem, policy=policy, created_at=now, updated_at=now
    )
    try:
        async with connection.begin_nested():
            await connection.execute(made)
    except IntegrityError:
        return False
    return True


async def find(connection: AsyncConnection, name: str, *, lock: bool = False) -> Deployment | None:
    return await _one(connection, select(*_COLUMNS).where(DeploymentRow.name == name), lock=lock)


async def find_by_id(connection: AsyncConnection, deployment_id: UUID, *, lock: bool = False) -> Deployment | None:
    return await _one(connection, select(*_COLUMNS).where(DeploymentRow.id == deployment_id), lock=lock)


async def names(connection: AsyncConnection, *, statuses: Collection[str] | None = None) -> list[str]:
    """Of all deployments, or of those whose current plan has one of these statuses."""
    wanted = select(DeploymentRow.name).order_by(DeploymentRow.name)
    if statuses is not None:
        wanted = wanted.join(PlanRow, PlanRow.id == DeploymentRow.plan_id).where(PlanRow.status.in_(statuses))
    return [*await connection.scalars(wanted)]


async def listed(connection: AsyncConnection, name: str) -> Listed | None:
    """One deployment as in lists."""
    return next(iter(await page(connection, limit=1, only=name)), None)


async def page(
    connection: AsyncConnection, *, limit: int, after: str | None = None, only: str | None = None
) -> list[Listed]:
    """Deployments in the order of their names; `only`: the one of this name."""
    wanted = (
        select(*_COLUMNS, _PENDING_STATUS, *_OF_PLAN, *_OF_WATCH)
        .outerjoin(PlanRow, PlanRow.id == DeploymentRow.plan_id)
        .outerjoin(WatchRow, WatchRow.deployment_id == DeploymentRow.id)
        .order_by(DeploymentRow.name)
        .limit(limit)
    )
    if after is not None:
        wanted = wanted.where(DeploymentRow.name > after)
    if only is not None:
        wanted = wanted.where(DeploymentRow.name == only)
    rows = [tuple(row) for row in await connection.execute(wanted)]
    mine = len(_COLUMNS)
    rentals = await _rentals_of(connection, [row[mine + 1] for row in rows if row[mine + 1] is not None])
    return [_listed(row[:mine], row[mine:], rentals) for row in rows]


def _listed(mine: tuple[Any, ...], others: tuple[Any, ...], rentals: Mapping[UUID, tuple[Rented, ...]]) -> Listed:
    pending, plan_id, revision, status, cost, issued_at, objective, gap, state, looked_at, holdings = others
    plan = CurrentPlanResource.of(plan_id, revision, status, cost, issued_at) if plan_id else None
    rented = rentals.get(plan_id, ())
    return Listed(Deployment(*mine), pending, plan, objective, gap, rented, state, looked_at, holdings)


async def every(connection: AsyncConnection) -> list[Listed]:
    """All deployments in the order of their names."""
    found: list[Listed] = []
    while more := await page(connection, limit=PAGE, after=found[-1].deployment.name if found else None):
        found += more
        if len(more) < PAGE:
            break
    return found


async def _rentals_of(connection: AsyncConnection, plan_ids: Sequence[UUID]) -> Mapping[UUID, tuple[Rented, ...]]:
    """What plans rent. A plan never changes, and to look into its document takes a while: this process remembers."""
    unknown = [plan_id for plan_id in plan_ids if plan_id not in _rentals]
    if unknown:
        wanted = select(PlanRow.id, cast(PlanRow.document, JSON)["rentals"]).where(PlanRow.id.in_(unknown))
        for plan_id, rentals in await connection.execute(wanted):
            _rentals[plan_id] = tuple(
                Rented(**{name: one[name] for name in Rented.__slots__}) for one in rentals or ()
            )
    found = {plan_id: _rentals[plan_id] for plan_id in plan_ids if plan_id in _rentals}
    while len(_rentals) > MOST_REMEMBERED:
        _rentals.popitem(last=False)
    return found


async def change(
    connection: AsyncConnection,
    deployment: Deployment,
    *,
    problem: dict[str, Any],
    policy: dict[str, Any],
    now: datetime,
) -> None:
    """Changes problem and policy, which makes it another version."""
    changed = update(DeploymentRow).where(DeploymentRow.id == deployment.id)
    await connection.execute(
        changed.values(problem=problem, policy=policy, version=DeploymentRow.version + 1, updated_at=now)
    )


async def remove(connection: AsyncConnection, deployment: Deployment, now: datetime) -> None:
    """Removes a deployment; its plans stay, and the lives of its machines, of which nobody will report any more."""
    held = (RentalLifeRow.deployment_id == deployment.id, RentalLifeRow.ended_at.is_(None))
    await connection.execute(update(RentalLifeRow).where(*held).values(ended_at=now))
    await connection.execute(delete(DeploymentRow).where(DeploymentRow.id == deployment.id))


async def set_current(
    connection: AsyncConnection, deployment: Deployment, *, revision: int, plan_id: UUID | None
) -> None:
    """Counts a plan; with `plan_id`, it is the one that holds from now on."""
    changed = update(DeploymentRow).where(DeploymentRow.id == deployment.id).values(revision=revision)
    await connection.execute(changed if plan_id is None else changed.values(plan_id=plan_id))


async def current(connection: AsyncConnection, name: str) -> CurrentRow | None:
    """The plan that holds; None without a deployment or a plan."""
    newest = DeploymentRow.revision
    columns = (DeploymentRow.id, PlanRow.id, PlanRow.revision, newest, PlanRow.status, PlanRow.document)
    wanted = select(*columns).join(PlanRow, PlanRow.id == DeploymentRow.plan_id).where(DeploymentRow.name == name)
    row: Any = (await connection.execute(wanted)).one_or_none()
    return None if row is None else CurrentRow(*row)


async def status_of(connection: AsyncConnection, plan_id: UUID) -> PlanStatus | None:
    found: PlanStatus | None = await connection.scalar(select(PlanRow.status).where(PlanRow.id == plan_id))
    return found


async def without_plan(connection: AsyncConnection, *, before: datetime) -> list[Deployment]:
    """Deployments that wait for their first plan, whose last attempt ended before this because of the market."""
    found = await connection.scalars(_WITHOUT_PLAN, {"before": before})
    deployments = [await find_by_id(connection, deployment_id) for deployment_id in found.all()]
    return [deployment for deployment in deployments if deployment is not None]


async def _one(connection: AsyncConnection, wanted: Select[Any], *, lock: bool) -> Deployment | None:
    row: Row[Any] | None = (await connection.execute(wanted.with_for_update() if lock else wanted)).one_or_none()
    return None if row is None else Deployment(*tuple(row))


async def begin_watch(connection: AsyncConnection, deployment_id: UUID) -> None:
    """A deployment is watched from now on; once."""
    new = upsert(WatchRow).values(deployment_id=deployment_id)
    await connection.execute(new.on_conflict_do_nothing(index_elements=["deployment_id"]))


async def touch(connection: AsyncConnection, deployment_id: UUID) -> None:
    """Notes in this transaction that something happened which calls for a look at the deployment."""
    touched = update(WatchRow).where(WatchRow.deployment_id == deployment_id)
    await connection.execute(touched.values(touches=WatchRow.touches + 1))


async def wake(connection: AsyncConnection, deployment_id: UUID, models: Iterable[str], now: datetime) -> None:
    """Notes that models are to be served, and calls for a look."""
    woken = WatchRow.woken + dict.fromkeys(models, now.isoformat())
    changed = update(WatchRow).where(WatchRow.deployment_id == deployment_id)
    await connection.execute(changed.values(woken=woken, touches=WatchRow.touches + 1))
