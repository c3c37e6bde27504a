"""The market's tables: recording what a poll changed, and reading offers as of an instant.

What offers were over a stretch of time is in settled.py, who has fallen silent in silence.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, func, insert, literal, or_, select, text, update
from sqlalchemy.dialects.postgresql import Range
from sqlalchemy.dialects.postgresql import insert as upsert

from sutler.adapters.base import USABLE_OUTCOMES, Coverage, Offer, Poll, RejectedRow
from sutler.service.db.tables import OFFERED_AT, OfferRow, PollRow, ProviderRow, RejectedRowRow
from sutler.service.market.backoff import NextPoll
from sutler.service.market.changes import LONGEST_RAW_CHARACTERS, Changes, OpenOffer, RejectedKey, rejected_by_key
from sutler.service.market.resources import LastPollResource, PollResource

POLLS_LOOKED_BACK: Final = 20  # chosen: usually all feeds are in them; `earlier_coverage` asks further back
LONGEST_LOOK_BACK: Final = timedelta(days=7)  # chosen: an offer that no poll spoke of for a week is as old as its row
USABLE: Final = tuple(sorted(USABLE_OUTCOMES))
SEEN: Final = ("ok", "partial")
OFFER_FIELDS: Final = tuple(Offer.__slots__)
IS_OPEN: Final = func.upper(OfferRow.valid).is_(None)


@dataclass(frozen=True, slots=True)
class ProviderState:
    """A provider's row, locked for the transaction."""

    id: int
    failures_in_a_row: int
    suspected_feeds: tuple[str, ...]
    last_poll_at: datetime | None


@dataclass(frozen=True, slots=True)
class SeenPoll:
    """When a poll took effect, what the clock said then, and of which offers it spoke."""

    at: datetime
    ended_at: datetime
    covered: tuple[Coverage, ...]


@dataclass(frozen=True, slots=True)
class PollReport:
    """What people and scripts are told of a poll. `opened` and `closed` count offer rows written and ended."""

    provider: str
    at: datetime
    seconds: float
    poll: Poll
    flags: Mapping[str, int]
    retry_at: datetime | None
    opened: int
    closed: int


def lock_provider(connection: Connection, name: str) -> ProviderState:
    """Returns the provider's row, made where there is none; other writers of this provider wait."""
    add_provider(connection, name)
    row = connection.execute(select(ProviderRow).where(ProviderRow.name == name).with_for_update()).one()
    last = connection.scalar(select(func.max(PollRow.at)).where(PollRow.provider_id == row.id))
    return ProviderState(row.id, row.failures_in_a_row, tuple(row.suspected_feeds), last)


def add_provider(connection: Connection, name: str) -> None:
    """Makes the row where there is none.

    It looks first: an insert that conflicts would use up an id of the table at every poll.
    """
    if connection.scalar(select(ProviderRow.id).where(ProviderRow.name == name)) is None:
        connection.execute(upsert(ProviderRow).values(name=name).on_conflict_do_nothing())


def next_poll_at(connection: Connection, name: str) -> tuple[datetime | None, datetime | None]:
    """When a provider may be polled next, and until when it has asked to be left alone."""
    columns = (ProviderRow.next_poll_at, ProviderRow.asked_to_wait_until)
    row = connection.execute(select(*columns).where(ProviderRow.name == name)).one_or_none()
    return (None, None) if row is None else (row.next_poll_at, row.asked_to_wait_until)


def recorded_poll(connection: Connection, poll_id: UUID) -> Row[Any] | None:
    """What the report of a poll needs, where the poll is in the store already."""
    columns = (PollRow.at, PollRow.flags, PollRow.retry_at, PollRow.opened, PollRow.closed)
    return connection.execute(select(*columns).where(PollRow.id == poll_id)).one_or_none()


def open_offers(connection: Connection, provider_id: int) -> list[OpenOffer]:
    """Lists what is held as for rent."""
    held = OfferRow
    columns = (held.id, held.offer_id, held.contract, held.feed, held.price_usd_per_hour, held.state)
    statement = select(*columns).where(held.provider_id == provider_id, IS_OPEN)
    return [OpenOffer(*row) for row in connection.execute(statement)]


def write_offers(connection: Connection, provider_id: int, found: Changes, *, at: datetime) -> None:
    """Ends and begins offers at the same instant."""
    begun = [
        {"provider_id": provider_id, "state": state, **{name: getattr(offer, name) for name in OFFER_FIELDS}}
        for offer, state in found.begun
    ]
    _replace(connection, OfferRow, ended=found.ended, begun=begun, at=at)


def _replace(
    connection: Connection,
    table: type[OfferRow] | type[RejectedRowRow],
    *,
    ended: Sequence[int],
    begun: Sequence[Mapping[str, Any]],
    at: datetime,
) -> None:
    if ended:
        until = func.tstzrange(func.lower(table.valid), at)
        connection.execute(update(table).where(table.id == func.any(list(ended))).values(valid=until))
    if begun:
        valid = Range(at, None, bounds="[)")
        connection.execute(insert(table), [{**row, "valid": valid} for row in begun])


def write_rejected(
    connection: Connection, provider_id: int, rejected: Iterable[RejectedRow], *, at: datetime, is_complete: bool
) -> None:
    """Begins rows that are new; ends those that did not come again, where the poll speaks of all rows."""
    found = rejected_by_key(rejected)
    table = RejectedRowRow
    held = connection.execute(
        select(table.id, table.row_key, table.reason).where(
            table.provider_id == provider_id, func.upper(table.valid).is_(None)
        )
    )
    rows = {RejectedKey(row.row_key, row.reason): row.id for row in held}
    ended = [row for key, row in rows.items() if key not in found] if is_complete else []
    begun = [
        {
            "provider_id": provider_id,
            "row_key": key.row_key,
            "reason": key.reason,
            "offer_id": row.offer_id,
            "detail": row.detail,
            "raw": row.raw[:LONGEST_RAW_CHARACTERS],
        }
        for key, row in found.items()
        if key not in rows
    ]
    _replace(connection, table, ended=ended, begun=begun, at=at)


def write_poll(
    connection: Connection,
    provider_id: int,
    report: PollReport,
    found: Changes,
    *,
    poll_id: UUID,
    ended_at: datetime,
    then: NextPoll,
) -> None:
    """Writes the poll's own row, and when the provider is polled next."""
    poll = report.poll
    connection.execute(
        insert(PollRow).values(
            id=poll_id,
            provider_id=provider_id,
            at=report.at,
            ended_at=ended_at,
            seconds=report.seconds,
            outcome=poll.outcome,
            http_status=poll.http_status,
            requests=poll.requests,
            kept=poll.kept,
            rejected=poll.rejected_by_reason,
            not_available=dict(poll.not_available),
            flags=dict(report.flags),
            covered=[[c.feed_prefix, c.up_to_usd_per_hour] for c in found.covered],
            opened=report.opened,
            closed=report.closed,
            retry_at=report.retry_at,
            detail=poll.detail,
        )
    )
    values: dict[str, Any] = {
        "next_poll_at": then.at,
        "asked_to_wait_until": then.asked_to_wait_until,
        "failures_in_a_row": then.failures_in_a_row,
    }
    if found.begun or found.ended:
        values["changes"] = ProviderRow.changes + 1  # deployments on this market are to be looked at
    if poll.is_usable:
        values["suspected_feeds"] = list(found.suspected)
    connection.execute(update(ProviderRow).where(ProviderRow.id == provider_id).values(values))


def offers_at(connection: Connection, at: datetime | None, providers: Sequence[str] = ()) -> list[Row[Any]]:
    """Offer rows with their provider's name, as of `at` (None: now), in a stable order."""
    columns = [getattr(OfferRow, name) for name in OFFER_FIELDS]
    statement = select(ProviderRow.name.label("provider"), func.lower(OfferRow.valid).label("since"), *columns)
    statement = statement.join_from(OfferRow, ProviderRow, OfferRow.provider_id == ProviderRow.id)
    statement = statement.where(IS_OPEN if at is None else _was_valid(at))
    if providers:
        statement = statement.where(ProviderRow.name.in_(providers))
    rows = connection.execute(statement).all()
    return sorted(rows, key=lambda row: (row.provider, row.offer_id, row.contract))


def _was_valid(at: datetime) -> ColumnElement[bool]:
    """Is the condition in the words of the indexes, which `valid @> at` would not use."""
    return or_(*(text(f"({condition.format(at=':at')})").bindparams(at=at) for condition in OFFERED_AT))


def polls_before(connection: Connection, at: datetime | None) -> dict[str, list[SeenPoll]]:
    """Returns, by provider, the last polls up to `at` that brought something, newest first."""
    latest = (
        select(PollRow.at, PollRow.ended_at, PollRow.covered)
        .where(PollRow.provider_id == ProviderRow.id, PollRow.outcome.in_(USABLE))
        .order_by(PollRow.at.desc())
        .limit(POLLS_LOOKED_BACK)
    )
    if at is not None:
        latest = latest.where(PollRow.at <= at)
    seen = latest.lateral("seen")
    rows = connection.execute(
        select(ProviderRow.name, seen.c.at, seen.c.ended_at, seen.c.covered).join_from(
            ProviderRow, seen, literal(True)
        )
    )
    found: dict[str, list[SeenPoll]] = {}
    for row in rows:
        found.setdefault(row.name, []).append(_seen_poll(row))
    return {name: sorted(polls, key=lambda poll: poll.at, reverse=True) for name, polls in found.items()}


def earlier_coverage(connection: Connection, provider: str, *, before: datetime) -> list[SeenPoll]:
    """Returns the last poll with each coverage that there was within a week before; newest first."""
    rows = connection.execute(
        select(PollRow.covered, func.max(PollRow.at).label("at"), func.max(PollRow.ended_at).label("ended_at"))
        .join_from(PollRow, ProviderRow, PollRow.provider_id == ProviderRow.id)
        .where(ProviderRow.name == provider, PollRow.outcome.in_(USABLE))
        .where(PollRow.at < before, PollRow.at > before - LONGEST_LOOK_BACK)
        .group_by(PollRow.covered)
    )
    return sorted(map(_seen_poll, rows), key=lambda poll: poll.at, reverse=True)


def _seen_poll(row: Row[Any]) -> SeenPoll:
    return SeenPoll(row.at, row.ended_at, tuple(Coverage(prefix, up_to) for prefix, up_to in row.covered))


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """A provider's last poll, and when the last one that says what is for rent ended."""

    provider: str
    last_poll: LastPollResource | None
    last_seen_at: datetime | None
    next_poll_at: datetime | None
    failures_in_a_row: int
    offers: int


def provider_reports(connection: Connection) -> list[ProviderReport]:
    """Every provider that was ever polled, by name."""
    providers = connection.execute(select(ProviderRow).order_by(ProviderRow.name)).all()
    return [
        ProviderReport(
            provider.name,
            _last_poll(connection, provider.id),
            _last_seen_at(connection, provider.id),
            provider.next_poll_at,
            provider.failures_in_a_row,
            _offers_for_rent(connection, provider.id),
        )
        for provider in providers
    ]


def _last_poll(connection: Connection, provider_id: int) -> LastPollResource | None:
    columns = [getattr(PollRow, name) for name in LastPollResource.model_fields]
    polls = select(*columns).where(PollRow.provider_id == provider_id).order_by(PollRow.at.desc()).limit(1)
    row = connection.execute(polls).one_or_none()
    return None if row is None else LastPollResource(**row._mapping)


def polls_of(
    connection: Connection, name: str, *, limit: int, before: datetime | None = None
) -> list[PollResource] | None:
    """The newest first, those before that instant; None where there is no such provider."""
    provider_id = connection.scalar(select(ProviderRow.id).where(ProviderRow.name == name))
    if provider_id is None:
        return None
    columns = [getattr(PollRow, name) for name in PollResource.model_fields]
    polls = select(*columns).where(PollRow.provider_id == provider_id).order_by(PollRow.at.desc()).limit(limit)
    rows = connection.execute(polls if before is None else polls.where(PollRow.at < before))
    return [PollResource(**row._mapping) for row in rows]


def _last_seen_at(connection: Connection, provider_id: int) -> datetime | None:
    """Returns the time of the last answer that speaks of more than list prices."""
    polls = select(PollRow.ended_at).where(PollRow.provider_id == provider_id, PollRow.outcome.in_(SEEN))
    return connection.scalar(polls.order_by(PollRow.at.desc()).limit(1))


def _offers_for_rent(connection: Connection, provider_id: int) -> int:
    offers = select(func.count()).where(OfferRow.provider_id == provider_id, IS_OPEN, OfferRow.available > 0)
    return connection.scalar(offers) or 0


def requests_since(connection: Connection, name: str, since: datetime) -> int:
    """Counts the requests that polls of this provider made since then."""
    requests = select(func.coalesce(func.sum(PollRow.requests), 0)).join_from(PollRow, ProviderRow)
    of_the_day = requests.where(ProviderRow.name == name, PollRow.ended_at >= since, PollRow.at >= since)
    found = connection.scalar(of_the_day)
    return int(found or 0)


def try_lock(connection: Connection, name: str) -> bool:
    """Takes the advisory lock on polling this provider, held until the connection closes."""
    statement = text("SELECT pg_try_advisory_lock(:space, hashtext(:name))")
    return bool(connection.scalar(statement, {"space": POLL_LOCK_SPACE, "name": name}))


def unlock(connection: Connection, name: str) -> bool:
    """Gives the lock back; False where this session did not have it."""
    statement = text("SELECT pg_advisory_unlock(:space, hashtext(:name))")
    return bool(connection.scalar(statement, {"space": POLL_LOCK_SPACE, "name": name}))


POLL_LOCK_SPACE: Final = 0x5E71  # any number: it keeps these advisory locks apart from others


def just_after(at: datetime, last: datetime | None) -> datetime:
    """Returns a time after `last`: polls of a provider take effect one after another, whatever the clock does."""
    return at if last is None or at > last else last + timedelta(microseconds=1)
