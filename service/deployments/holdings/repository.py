"""What deployments have rented, in the store: the last report of each. SQL lives here only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import WatchRow
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.solver.problem import Contract
from sutler.solver.replanning import HoldingKey


@dataclass(frozen=True, slots=True)
class HoldingsReport:
    """The last report and when it came; None for both before the first."""

    holdings: tuple[HoldingDocument, ...] | None
    at: datetime | None


async def reported(connection: AsyncConnection, deployment_id: UUID) -> HoldingsReport:
    """The deployment's last report."""
    wanted = select(WatchRow.holdings, WatchRow.holdings_at).where(WatchRow.deployment_id == deployment_id)
    holdings, at = (await connection.execute(wanted)).one_or_none() or (None, None)
    return HoldingsReport(documents_of(holdings), at)


def documents_of(holdings: list[Any] | None) -> tuple[HoldingDocument, ...] | None:
    """A report's holdings, as they were stored."""
    return None if holdings is None else tuple(HoldingDocument.model_validate(holding) for holding in holdings)


async def put(
    connection: AsyncConnection, deployment_id: UUID, documents: Sequence[HoldingDocument], now: datetime
) -> None:
    """Replaces the report, and has the deployment looked at."""
    values = {
        "holdings": [document.model_dump(mode="json", exclude_none=True) for document in documents],
        "holdings_at": now,
    }
    row = await connection.execute(
        select(WatchRow.held_before).where(WatchRow.deployment_id == deployment_id).with_for_update()
    )
    before = row.scalar_one_or_none() or {}
    most = counts(documents)
    for key, count in before.items():
        most[key] = max(count, most.get(key, 0))
    values["held_before"] = most
    made = insert(WatchRow).values(deployment_id=deployment_id, **values)
    touched = {**values, "touches": WatchRow.touches + 1, "urgent": WatchRow.touches + 1}
    await connection.execute(made.on_conflict_do_update(index_elements=[WatchRow.deployment_id], set_=touched))


async def plan_issued(
    connection: AsyncConnection, deployment_id: UUID, *, counted_on: Sequence[HoldingDocument]
) -> None:
    """What is lost is counted anew from what is held now, and the deployment is looked at.

    `counted_on`: what the plan takes to be held. A loss that was reported while it was made is one of this plan.
    """
    held = counts((await reported(connection, deployment_id)).holdings or ())
    before = counts(counted_on)
    most = {kind: max(held.get(kind, 0), before.get(kind, 0)) for kind in held.keys() | before.keys()}
    changed = update(WatchRow).where(WatchRow.deployment_id == deployment_id)
    await connection.execute(changed.values(held_before=most, touches=WatchRow.touches + 1))


def counts(holdings: Sequence[HoldingDocument]) -> dict[str, int]:
    """Machines by `kind_of`."""
    found: dict[str, int] = {}
    for holding in holdings:
        kind = kind_of(holding.provider, holding.offer_id, holding.contract, holding.gpus)
        found[kind] = found.get(kind, 0) + holding.count
    return found


def machines_by_key(counted: Mapping[str, int]) -> dict[HoldingKey, int]:
    """What `counts` returned, by (provider, offer_id, contract, GPUs)."""
    parts = {kind: kind.split("\n") for kind in counted}
    return {(p, offer_id, cast(Contract, c), int(gpus)): counted[k] for k, (p, offer_id, c, gpus) in parts.items()}


def kind_of(provider: str, offer_id: str, contract: str, gpus: int) -> str:
    """Returns one text for machines that cannot be told apart."""
    return "\n".join((provider, offer_id, contract, str(gpus)))


async def confirm(connection: AsyncConnection, deployment_id: UUID, now: datetime) -> None:
    """The last report was given once more: it is as fresh as now, and there is nothing new to look at."""
    same = update(WatchRow).where(WatchRow.deployment_id == deployment_id)
    await connection.execute(same.values(holdings_at=now))
