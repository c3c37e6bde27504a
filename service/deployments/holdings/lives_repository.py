"""Lives of rented machines, in the store: begun and ended by reports. SQL lives here only.

Machines of one kind are interchangeable: those that go are taken to be the newest.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import RentalLifeRow
from sutler.service.deployments.holdings.lives import Ends, Loss
from sutler.service.deployments.holdings.schemas import MachineKey
from sutler.service.documents.market import OfferDocument

KEPT: Final = timedelta(days=90)  # chosen: a quarter tells what a kind of machine is like; older ones tell of others
_LOSSES: Final = text("""
    SELECT l.provider, l.offer_id, l.contract, l.gpu, l.machine_id, l.host_id, l.region, l.ended_at, l.count
    FROM public.rental_life l LEFT JOIN public.deployment d ON d.id = l.deployment_id
    WHERE l.is_lost AND l.ended_at > :since AND (l.deployment_id = :me
        OR (:is_shared AND (d.problem -> 'market' -> 'offers') IS NULL))
    ORDER BY l.ended_at, l.id
""")


async def note(
    connection: AsyncConnection,
    deployment_id: UUID,
    *,
    begun: Mapping[MachineKey, int],
    ended: Mapping[MachineKey, Ends],
    places: Mapping[tuple[str, str, str], OfferDocument],
    now: datetime,
) -> None:
    """Notes what a report adds and takes away. `places`: offers as they were when they were last for rent."""
    if begun:
        rows = [_row(deployment_id, key, count, places.get(key[:3]), now) for key, count in begun.items()]
        await connection.execute(insert(RentalLifeRow), rows)
    if ended:
        await _end(connection, deployment_id, ended, now)


def _row(
    deployment_id: UUID, key: MachineKey, count: int, place: OfferDocument | None, now: datetime
) -> dict[str, Any]:
    names = ("provider", "offer_id", "contract", "gpu", "gpus")
    where = {name: None if place is None else getattr(place, name) for name in ("machine_id", "host_id", "region")}
    return {
        "deployment_id": deployment_id,
        **dict(zip(names, key, strict=True)),
        "count": count,
        **where,
        "began_at": now,
    }


async def _end(
    connection: AsyncConnection, deployment_id: UUID, ended: Mapping[MachineKey, Ends], now: datetime
) -> None:
    """A row of machines of which some are lost, some given back and some stay becomes up to three."""
    row = RentalLifeRow
    wanted = select(row.__table__).where(row.deployment_id == deployment_id, row.ended_at.is_(None))
    left = {key: [one.lost, one.count - one.lost] for key, one in ended.items()}
    for life in (await connection.execute(wanted.order_by(row.began_at.desc(), row.id.desc()))).mappings().all():
        key = (life["provider"], life["offer_id"], life["contract"], life["gpu"], life["gpus"])
        stays: int = life["count"]
        for kind in (0, 1) if key in left else ():
            count = min(left[key][kind], stays)
            if count:
                left[key][kind] -= count
                stays -= count
                over = {**life, "count": count, "ended_at": now, "is_lost": kind == 0}
                del over["id"]
                await connection.execute(insert(row).values(**over))
        if not stays:
            await connection.execute(delete(row).where(row.id == life["id"]))
        elif stays < life["count"]:
            await connection.execute(update(row).where(row.id == life["id"]).values(count=stays))


async def losses(
    connection: AsyncConnection, deployment_id: UUID, *, since: datetime, is_shared: bool
) -> tuple[Loss, ...]:
    """What was lost since then, the first first: by the deployment and, where it `is_shared`, by all others that plan
    on the store's market, of whatever project."""
    rows = await connection.execute(_LOSSES, {"me": deployment_id, "since": since, "is_shared": is_shared})
    return tuple(Loss(*row) for row in rows.all())


async def forget_old(connection: AsyncConnection, before: datetime) -> None:
    """Removes lives that were over by then."""
    await connection.execute(delete(RentalLifeRow).where(RentalLifeRow.ended_at < before))
