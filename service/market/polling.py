"""Polls a provider and records it: fetch with no transaction open, then one short transaction.

An advisory lock in the database keeps several instances from polling one provider at once. Whatever interrupts the
fetch or the transaction leaves the store as it was.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import Outcome
from sutler.adapters.polling import poll as poll_cloud
from sutler.service.db.engine import connected, transaction, translated
from sutler.service.db.errors import DatabaseError, DatabaseUnreachableError
from sutler.service.market import repository
from sutler.service.market.backoff import LONGEST_BACKOFF_S, next_poll
from sutler.service.market.changes import changes
from sutler.service.market.repository import PollReport
from sutler.service.settings import Pace, variable

LOCK_PATIENCE_S: Final = 60.0  # chosen: a poll that is under way is waited for, one that hangs is told of
LOCK_RETRY_S: Final = 0.2  # chosen: asks the database a few times a second, and nobody notices the wait
RECORD_ATTEMPTS: Final = 4  # chosen: with the pauses between them, a short restart of the database loses no poll
RECORD_RETRY_S: Final = 1.5
LONGEST_WAIT: Final = timedelta(days=2)  # no cloud is left alone for longer than a day

Fetch = Callable[[Provider, ProviderConfig], Poll]


@dataclass(frozen=True, slots=True)
class Poller:
    """Polls into one store. `fetch`, `now` and `sleep` are handed in, so that tests own time and clouds."""

    engine: Engine
    configs: Mapping[str, ProviderConfig]
    poll_interval_s: float | None = None
    paces: Mapping[str, Pace] = field(default_factory=dict)
    fetch: Fetch = poll_cloud
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def interval_s(self, provider: Provider) -> float:
        """Returns the operator's interval, but never shorter than the cloud's limits bear."""
        own = self._pace(provider).poll_interval_s
        wanted = own or self.poll_interval_s or provider.poll_interval_s
        return max(wanted, provider.least_poll_interval_s)

    def _pace(self, provider: Provider) -> Pace:
        return self.paces.get(provider.name, Pace())

    def poll(self, provider: Provider, *, insist: bool = False) -> PollReport:
        """Polls now, after any poll of this provider that is under way elsewhere. Raises DatabaseError.

        A cloud that has asked for patience, or whose budget for the day is spent, is left alone until then, unless
        the caller insists.
        """
        with self._locked(provider.name, patience_s=LOCK_PATIENCE_S) as is_ours:
            if not is_ours:
                reason = f"another instance has been polling {provider.name} for {LOCK_PATIENCE_S:g} s"
                raise DatabaseUnreachableError(f"{reason}: try again, or look for a poll that hangs")
            left_alone = None if insist else self._left_alone(provider)
            if left_alone is not None:
                return left_alone
            return self._poll_and_record(provider)

    def poll_if_due(self, provider: Provider) -> PollReport | None:
        """Polls unless another instance does, or did a moment ago. Raises DatabaseError."""
        with self._locked(provider.name, patience_s=0.0) as is_ours:
            if not is_ours or not self.is_due(provider):
                return None
            return self._poll_and_record(provider)

    def is_due(self, provider: Provider) -> bool:
        due_at = self.next_poll_at(provider)
        return due_at is None or due_at <= self.now()

    def next_poll_at(self, provider: Provider) -> datetime | None:
        """Returns when this provider may be polled; None where it never was."""
        due_at, spent_until = self._waits(provider)[0], self._budget_spent_until(provider)
        return due_at if spent_until is None else max(due_at or spent_until, spent_until)

    def _left_alone(self, provider: Provider) -> PollReport | None:
        """Returns a report instead of a poll, where there is a reason for patience."""
        now = self.now()
        asked_until, spent_until = self._waits(provider)[1], self._budget_spent_until(provider)
        if asked_until is not None and asked_until > now:
            detail = f"{provider.title} has asked to be left alone until {asked_until:%Y-%m-%d %H:%M:%S} UTC"
            return _not_asked(provider, "retry", detail, now=now, until=asked_until)
        if spent_until is not None:
            setting = variable(provider.name, "requests_per_day")
            detail = f"the day's budget of requests to {provider.title} is spent ({setting})"
            return _not_asked(provider, "quota", detail, now=now, until=spent_until)
        return None

    def _budget_spent_until(self, provider: Provider) -> datetime | None:
        """Returns the end of the UTC day, where the requests of the day have used the budget up."""
        budget = self._pace(provider).requests_per_day
        if budget is None:
            return None
        midnight = self.now().replace(hour=0, minute=0, second=0, microsecond=0)
        with connected(self.engine) as connection:
            spent = repository.requests_since(connection, provider.name, midnight)
        return midnight + timedelta(days=1) if spent >= budget else None

    def _waits(self, provider: Provider) -> tuple[datetime | None, datetime | None]:
        """Returns when the provider is due, and until when it asked to be left alone.

        A time that is further ahead than any wait was stored by a clock that has been set back since: no wait."""
        with connected(self.engine) as connection:
            due_at, asked_until = repository.next_poll_at(connection, provider.name)
        now = self.now()
        longest_own_s = max(self.interval_s(provider), LONGEST_BACKOFF_S)
        if asked_until is not None and asked_until > now + LONGEST_WAIT:
            asked_until = None
        if due_at is not None and asked_until is None and due_at > now + timedelta(seconds=longest_own_s):
            due_at = None
        return due_at, asked_until

    @contextmanager
    def _locked(self, name: str, *, patience_s: float) -> Iterator[bool]:
        give_up_at = self.monotonic() + patience_s
        with translated():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        is_ours = False
        try:
            with translated():
                is_ours = repository.try_lock(connection, name)
                while not is_ours and self.monotonic() < give_up_at:
                    self.sleep(LOCK_RETRY_S)
                    is_ours = repository.try_lock(connection, name)
            yield is_ours
        finally:
            if is_ours:
                _release(connection, name)
            connection.close()

    def _poll_and_record(self, provider: Provider) -> PollReport:
        started = self.monotonic()
        poll = self.fetch(provider, self.configs[provider.name])
        seconds = self.monotonic() - started
        poll_id, at = uuid4(), self.now()
        for attempt in range(1, RECORD_ATTEMPTS + 1):
            try:
                return self._record(provider, poll, poll_id=poll_id, at=at, seconds=seconds)
            except DatabaseUnreachableError:
                if attempt == RECORD_ATTEMPTS:
                    raise
                self.sleep(RECORD_RETRY_S)
        raise AssertionError("unreachable")

    def _record(self, provider: Provider, poll: Poll, *, poll_id: UUID, at: datetime, seconds: float) -> PollReport:
        """Writes one transaction; `poll_id` makes a repetition after a lost connection harmless."""
        with transaction(self.engine) as connection:
            state = repository.lock_provider(connection, provider.name)
            earlier = repository.recorded_poll(connection, poll_id)
            if earlier is not None:
                done = (earlier.at, seconds, poll, earlier.flags, earlier.retry_at, earlier.opened, earlier.closed)
                return PollReport(provider.name, *done)
            ended_at, at = at, repository.just_after(at, state.last_poll_at)
            held = repository.open_offers(connection, state.id)
            found = changes(poll, held, suspected_before=state.suspected_feeds)
            flags = {**poll.flags, **({"suspect_empty": len(found.suspected)} if found.suspected else {})}
            then = next_poll(
                poll, at=ended_at, interval_s=self.interval_s(provider), failures_before=state.failures_in_a_row
            )
            is_complete = poll.outcome == "ok" and not found.suspected
            repository.write_offers(connection, state.id, found, at=at)
            repository.write_rejected(connection, state.id, poll.rejected, at=at, is_complete=is_complete)
            done = (at, seconds, poll, flags, then.retry_at, len(found.begun), len(found.ended))
            report = PollReport(provider.name, *done)
            repository.write_poll(connection, state.id, report, found, poll_id=poll_id, ended_at=ended_at, then=then)
        return report


def _not_asked(provider: Provider, outcome: Outcome, detail: str, *, now: datetime, until: datetime) -> PollReport:
    poll = Poll(outcome=outcome, detail=f"{detail}: it was not asked")
    return PollReport(provider.name, now, 0.0, poll, {}, until, 0, 0)


def _release(connection: Connection, name: str) -> None:
    """Frees the lock; where the database cannot be told, the end of the session does, a moment later."""
    try:
        is_free = not connection.invalidated and repository.unlock(connection, name)
    except (SQLAlchemyError, DatabaseError):
        is_free = False
    if not is_free:
        connection.invalidate()
