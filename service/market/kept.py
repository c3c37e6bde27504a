"""The market as it was read last, for as long as no cloud has been polled since.

To read thousands of offers takes many times longer than to look through them.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from threading import Lock

from sqlalchemy import Engine, text

from sutler.service.db.engine import connected
from sutler.service.translation.stored_market import StoredMarket

# Whatever offers the store shows now, only polls change.
_LAST_POLLS = text(
    "SELECT p.id, (SELECT max(q.at) FROM poll q WHERE q.provider_id = p.id) FROM provider p ORDER BY 1"
)


class KeptMarket:
    """One per process; threads may ask at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last_polls: list[tuple[int, datetime | None]] | None = None
        self._market: StoredMarket | None = None

    def get(self, engine: Engine, now: datetime, read: Callable[[], StoredMarket]) -> StoredMarket:
        """The market now: as kept, or as `read` gives it. Raises DatabaseError."""
        with connected(engine) as connection:
            last_polls = [(row[0], row[1]) for row in connection.execute(_LAST_POLLS)]
        with self._lock:
            if self._market is None or last_polls != self._last_polls:
                # What was polled while it was being read is in it or not: the next caller looks again.
                self._market, self._last_polls = read(), last_polls
            return replace(self._market, taken_at=now)
