"""Feeds in the store: one row for each URL. Whoever claims a row reads it; what is read is stored once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import FeedRow
from sutler.service.deployments.traffic.counters import Reading

_READING: Final = TypeAdapter(Reading)

_IS_DUE: Final = "(due_at IS NULL OR due_at <= :now OR due_at > :ahead)"
# Deployments take turns: one comes sooner the fewer of its feeds are being read, and never with more than its share.
_CLAIMED: Final = text(f"""
    WITH due AS (
        SELECT id AS due_id, due_at AS since,
            row_number() OVER (PARTITION BY deployment_id ORDER BY due_at NULLS FIRST)
                + (SELECT count(*) FROM unnest(CAST(:busy AS uuid[])) AS busy WHERE busy = deployment_id) AS turn
        FROM feed WHERE {_IS_DUE} AND id <> ALL(CAST(:under_way AS uuid[])))
    UPDATE feed SET due_at = :now + (options ->> 'every_s')::float8 * interval '1 second'
    WHERE id IN (SELECT id FROM feed JOIN due ON due_id = id WHERE turn <= :most_of_one AND {_IS_DUE}
                 ORDER BY turn, since NULLS FIRST LIMIT :most FOR UPDATE OF feed SKIP LOCKED)
    RETURNING id
""")


@dataclass(frozen=True, slots=True)
class FeedSource:
    """One URL of a feed; `number` is the feed's place in the caller's list."""

    model: str
    kind: str
    url: str
    number: int
    every_s: float
    selector: dict[str, str]
    replica: str | None = None

    @property
    def identity(self) -> tuple[object, ...]:
        """What a reading is the continuation of."""
        return self.model, self.kind, self.url, tuple(sorted(self.selector.items()))

    @property
    def name(self) -> str:
        """Who counts: one server may tell of several parts of the traffic."""
        labels = ",".join(f'{label}="{value}"' for label, value in sorted(self.selector.items()))
        return f"{self.url} {{{labels}}}" if labels else self.url

    @property
    def options(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "every_s": self.every_s,
            "selector": self.selector,
            **({"replica": self.replica} if self.replica else {}),
        }


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A source, and how it went."""

    id: UUID
    deployment_id: UUID
    source: FeedSource
    due_at: datetime | None
    read_at: datetime | None
    reading: Reading | None
    error: str | None
    failures: int


async def of_deployment(connection: AsyncConnection, deployment_id: UUID) -> list[StoredSource]:
    """A deployment's sources in the order of the caller's list."""
    rows = await connection.execute(select(FeedRow.__table__).where(FeedRow.deployment_id == deployment_id))
    return sorted((_stored(row) for row in rows), key=lambda s: (s.source.number, s.source.url))


async def replace(connection: AsyncConnection, deployment_id: UUID, sources: Sequence[FeedSource]) -> None:
    """Stores these sources and no others; what is read already goes on from its last reading."""
    known = {stored.source.identity: stored for stored in await of_deployment(connection, deployment_id)}
    wanted = {source.identity for source in sources}
    gone = [stored.id for identity, stored in known.items() if identity not in wanted]
    await connection.execute(delete(FeedRow).where(FeedRow.id.in_(gone)))
    for source in sources:
        before = known.get(source.identity)
        if before is None:
            columns = {"model": source.model, "kind": source.kind, "url": source.url, "options": source.options}
            await connection.execute(insert(FeedRow).values(id=uuid4(), deployment_id=deployment_id, **columns))
        elif before.source != source:
            await connection.execute(
                update(FeedRow).where(FeedRow.id == before.id).values(options=source.options, due_at=None)
            )


async def claim(
    connection: AsyncConnection,
    now: datetime,
    *,
    ahead: datetime,
    most: int,
    most_of_one: int,
    under_way: Collection[StoredSource] = (),
) -> list[StoredSource]:
    """What is due and that nobody else reads; it is due again `every_s` later, also where its reader dies.

    `ahead`: what is due later than that was dated by a clock that has been set back. `most_of_one`: of one
    deployment, with what is `under_way`.
    """
    asked = {
        "now": now,
        "ahead": ahead,
        "most": most,
        "most_of_one": most_of_one,
        "under_way": [stored.id for stored in under_way],
        "busy": [stored.deployment_id for stored in under_way],
    }
    claimed = (await connection.scalars(_CLAIMED, asked)).all()
    rows = await connection.execute(select(FeedRow.__table__).where(FeedRow.id.in_(claimed)))
    return [_stored(row) for row in rows]


async def locked(connection: AsyncConnection, feed_id: UUID) -> StoredSource | None:
    """The source as it is now, held until the end of the transaction; None where it was removed."""
    wanted = select(FeedRow.__table__).where(FeedRow.id == feed_id).with_for_update()
    row = (await connection.execute(wanted)).one_or_none()
    return None if row is None else _stored(row)


async def store(connection: AsyncConnection, feed_id: UUID, reading: Reading | None, **columns: Any) -> None:
    """Keeps how a reading went; the next one continues this `reading`."""
    stored = None if reading is None else _READING.dump_python(reading, mode="json")
    await connection.execute(update(FeedRow).where(FeedRow.id == feed_id).values(reading=stored, **columns))


def _stored(row: Any) -> StoredSource:
    options = row.options
    stated = (options["number"], options["every_s"], options["selector"], options.get("replica"))
    source = FeedSource(row.model, row.kind, row.url, *stated)
    reading = None if row.reading is None else _READING.validate_python(row.reading)
    return StoredSource(row.id, row.deployment_id, source, row.due_at, row.read_at, reading, row.error, row.failures)
