"""A store filled with a made-up history: rows by COPY into the tables that the migrations made, then indexes.

A real store grew poll by poll, which shows in the order of its rows: PostgreSQL writes a row anew when it ends, so
they lie in the order of their ends. They are copied in that order, and the index over intervals is filled with the
rows one after another, as it would be: built in one go it would be another tree.
"""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, Engine, insert, text

from benchmarks.market_history import OPEN, History, offer_id, price
from sutler.adapters.base import Offer
from sutler.service.db import embedded
from sutler.service.db.engine import transaction
from sutler.service.db.store import open_store
from sutler.service.db.tables import ProviderRow
from sutler.service.market.changes import state_of
from sutler.service.market.repository import OFFER_FIELDS
from sutler.service.settings import StoreSettings

_ROWS_AT_ONCE: Final = 20_000
_VARYING: Final = ("offer_id", "price_usd_per_hour")
_FIXED: Final = tuple(name for name in OFFER_FIELDS if name not in _VARYING)
_OFFER_COLUMNS: Final = ("provider_id", "valid", "state", *_VARYING, *_FIXED)
_POLL_COLUMNS: Final = (
    *("id", "provider_id", "at", "ended_at", "seconds", "outcome", "http_status", "requests", "kept", "rejected"),
    *("not_available", "flags", "covered", "opened", "closed", "detail"),
)


@contextmanager
def opened_store(data_dir: Path) -> Iterator[Engine]:
    """The private database of this folder with its tables; its server stops at the end."""
    engine = open_store(StoreSettings(data_dir))
    try:
        yield engine
    finally:
        engine.dispose()
        embedded.stop(data_dir)


def fill(engine: Engine, histories: Iterable[History]) -> None:
    """Writes the histories, then what a store that was vacuumed lately knows of itself."""
    with transaction(engine) as connection:
        definitions = _dropped_indexes(connection)
        for history in histories:
            _fill(connection, history)
        for definition in definitions:
            connection.execute(text(definition))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM (ANALYZE) offer, poll, provider"))
        connection.execute(text("CHECKPOINT"))


def _dropped_indexes(connection: Connection) -> list[str]:
    """Drops what is faster to make afterwards; returns how to. The index over intervals stays: see above."""
    found = connection.execute(
        text("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'offer' AND indexdef LIKE '%USING btree%'")
    ).all()
    dropped = [row for row in found if not row.indexname.startswith("pk_")]
    for row in dropped:
        connection.execute(text(f"DROP INDEX {row.indexname}"))
    return [row.indexdef for row in dropped]


def _fill(connection: Connection, history: History) -> None:
    statement = insert(ProviderRow).values(name=history.provider).returning(ProviderRow.id)
    provider_id = connection.execute(statement).scalar_one()
    _copy(connection, "poll", _POLL_COLUMNS, _poll_lines(history, provider_id))
    _copy(connection, "offer", _OFFER_COLUMNS, _offer_lines(history, provider_id))


def _copy(connection: Connection, table: str, columns: Iterable[str], blocks: Iterable[str]) -> None:
    cursor: Any = connection.connection.cursor()
    with cursor, cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for block in blocks:
            copy.write(block)


def _poll_lines(history: History, provider_id: int) -> Iterator[str]:
    random = np.random.default_rng(len(history.intervals))
    covered = "[" + ", ".join(f'["{feed}", null]' for feed in history.feeds) + "]"
    for number, at in enumerate(history.instants):
        own_id = uuid.UUID(bytes=random.bytes(16), version=4)
        counts = (history.held[number], history.begun[number], history.ended[number])
        when = at.isoformat()
        yield (
            f"{own_id}\t{provider_id}\t{when}\t{when}\t4.1\tok\t200\t{len(history.feeds)}\t{counts[0]}"
            f"\t{{}}\t{{}}\t{{}}\t{covered}\t{counts[1]}\t{counts[2]}\t\n"
        )


def _offer_lines(history: History, provider_id: int) -> Iterator[str]:
    """Digests of rows that have ended are never read again: they are random. Those of open rows are real."""
    random = np.random.default_rng(len(history.intervals))
    times = [at.astimezone(UTC).isoformat() for at in history.instants]
    fixed = ["\t".join(_copied(getattr(template, name)) for name in _FIXED) for template in history.templates]
    rows, templates = history.intervals, history.templates
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        columns = (rows.slot[part], rows.begins[part], rows.ends[part], rows.listing[part], rows.factor[part])
        digests = random.bytes(16 * len(columns[0])).hex()
        lines = []
        for i, (slot, begin, end, listing, factor) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            is_open = end == OPEN
            digest = state_of(history.offer(start + i)).hex() if is_open else digests[32 * i : 32 * i + 32]
            template = templates[slot]
            lines.append(
                f"{provider_id}\t[{times[begin]},{'' if is_open else times[end]})\t\\\\x{digest}"
                f"\t{offer_id(template, listing)}\t{price(template, factor)!r}\t{fixed[slot]}\n"
            )
        yield "".join(lines)


def _copied(value: object) -> str:
    """Writes the value as COPY reads it."""
    if value is None:
        return "\\N"
    if isinstance(value, tuple):
        return "{" + ",".join(map(str, value)) + "}"
    return str(value)


def sizes_mb(engine: Engine) -> dict[str, float]:
    """Gives by table and index the 10^6 bytes on disk; tables without their indexes, and the whole database."""
    statement = """
        SELECT relname, CASE relkind WHEN 'r' THEN pg_table_size(oid) ELSE pg_relation_size(oid) END / 1e6 AS mb
        FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') ORDER BY 2 DESC
    """
    with engine.connect() as connection:
        found = {row.relname: float(row.mb) for row in connection.execute(text(statement)) if row.mb > 0.1}
        whole = connection.scalar(text("SELECT pg_database_size(current_database()) / 1e6"))
    return {"database": float(whole or 0.0), **found}


def forget_files(data_dir: Path) -> None:
    """Takes a stopped database out of the memory that the system caches files in."""
    for path in (data_dir / embedded.FOLDER / "base").rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def offers_of(histories: Iterable[History]) -> tuple[Offer, ...]:
    """All that is for rent after the last poll."""
    return tuple(offer for history in histories for offer in history.open_offers())
