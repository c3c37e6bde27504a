"""Tells webhooks of clouds that have fallen silent, and of those that answer again: each once, whoever looks."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.adapters.base import USABLE_OUTCOMES
from sutler.service.db.queue import Queue
from sutler.service.webhooks.service import announce

logger = logging.getLogger("sutler.market")

# Where the clock was set back, `at` still says which poll was later, and `ended_at` how long ago it was.
_STATES: Final = text("""
    SELECT p.id, p.name, p.stale_since, first.at AS first_at, first.ended_at AS first_ended_at,
           usable.at AS usable_at, usable.ended_at AS usable_ended_at, last.outcome, last.detail
    FROM provider p
    CROSS JOIN LATERAL (SELECT * FROM poll WHERE provider_id = p.id ORDER BY at LIMIT 1) first
    CROSS JOIN LATERAL (SELECT * FROM poll WHERE provider_id = p.id ORDER BY at DESC LIMIT 1) last
    LEFT JOIN LATERAL (SELECT * FROM poll WHERE provider_id = p.id AND outcome = ANY(:usable)
                       ORDER BY at DESC LIMIT 1) usable ON true
    WHERE p.name = ANY(:providers) ORDER BY p.name
""")
_LOCK: Final = text(
    "SELECT name FROM provider WHERE name = ANY(:providers) ORDER BY name FOR NO KEY UPDATE SKIP LOCKED"
)
_MARK: Final = text(
    "UPDATE provider SET stale_since = :stale_since "
    "WHERE id = :id AND (stale_since IS NULL) = :was_fresh RETURNING id"
)

Event = Literal["market.stale", "market.fresh"]


@dataclass(frozen=True, slots=True)
class _State:
    """A provider that was polled: what was said of it, its first poll, the last usable one, the last of all."""

    id: int
    name: str
    stale_since: datetime | None
    first_at: datetime
    first_ended_at: datetime
    usable_at: datetime | None
    usable_ended_at: datetime | None
    outcome: str
    detail: str


@dataclass(frozen=True, slots=True)
class _Clock:
    """What the time is, and what counts as silence."""

    now: datetime
    stale_after_s: float
    awake_since: datetime | None

    def is_long_ago(self, at: datetime) -> bool:
        return (self.now - at).total_seconds() > self.stale_after_s

    def has_been_awake(self) -> bool:
        """Whether this runs long enough; a start that is yet to come is of a clock that was set back since."""
        return self.awake_since is None or self.awake_since > self.now or self.is_long_ago(self.awake_since)


async def look(
    connection: AsyncConnection,
    queue: Queue,
    *,
    now: datetime,
    stale_after_s: float,
    providers: Sequence[str],
    awake_since: datetime | None = None,
) -> int:
    """Announces `market.stale` and `market.fresh` where that is news; returns how many.

    A provider is stale once its last usable answer, or its first poll where it never gave one, is longer ago than
    `stale_after_s`, whether it failed or was not asked. Nothing is said of providers that were never polled: they
    have no offers that could be old. `awake_since` is when this process began: until `stale_after_s` later nothing
    becomes stale, because a service that was off for a night has asked nobody, and is about to. `stale_after_s` is
    to be longer than any provider's poll interval, or slow polling is taken for silence.

    A stale provider is fresh again with a usable answer that is later, in the order of its polls, than the one at
    which its silence began: a clock that is set back makes nothing fresh, and nothing stale. Several may look at
    once: who does not get a provider's row at once leaves it to the other.
    """
    clock = _Clock(now, stale_after_s, awake_since)
    changed = [state.name for state in await _states(connection, providers) if _news(state, clock)]
    if not changed:
        return 0
    locked = (await connection.scalars(_LOCK, {"providers": changed})).all()
    found = [(state, _news(state, clock)) for state in await _states(connection, locked)]
    return sum([await _tell(connection, queue, state, event, clock) for state, event in found if event])


async def _states(connection: AsyncConnection, providers: Sequence[str]) -> list[_State]:
    values = {"providers": list(providers), "usable": sorted(USABLE_OUTCOMES)}
    return [_State(*row) for row in await connection.execute(_STATES, values)]


def _news(state: _State, clock: _Clock) -> Event | None:
    if state.stale_since is None:
        is_silent = clock.is_long_ago(state.usable_ended_at or state.first_ended_at)
        return "market.stale" if is_silent and clock.has_been_awake() else None
    if state.usable_at is None or state.usable_ended_at is None or state.usable_at <= state.stale_since:
        return None
    return None if clock.is_long_ago(state.usable_ended_at) else "market.fresh"


async def _tell(connection: AsyncConnection, queue: Queue, state: _State, event: Event, clock: _Clock) -> bool:
    """Announces the event and returns whether it was news still."""
    is_stale = event == "market.stale"
    since = (state.usable_at or state.first_at) if is_stale else None
    marked = await connection.execute(_MARK, {"id": state.id, "stale_since": since, "was_fresh": is_stale})
    if marked.one_or_none() is None:
        return False
    data = {"provider": state.name, "last_usable_at": _shown(state.usable_ended_at)}
    if is_stale:
        logger.warning("%s is stale: its last poll came to %s", state.name, state.outcome)
        last = {"last_outcome": state.outcome, "last_detail": state.detail}
        await announce(connection, queue, event=event, data={**data, "stale_after_s": clock.stale_after_s, **last})
    else:
        logger.info("%s is fresh again", state.name)
        await announce(connection, queue, event=event, data={**data, "stale_since": _shown(state.stale_since)})
    return True


def _shown(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")
