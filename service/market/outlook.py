"""What the store's history says of how long machines stay for rent: read per machine, learnt, kept for some minutes.

A machine of which at least so many GPUs are for rent under a contract lives as long as its offers do, whatever their
ids, prices and slices. Supply that is known by words or list prices alone names no machine, and has no lives. The end
of a machine that we rented is no end: where it was held or planned by a deployment of this store when it went.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from time import monotonic
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, Engine, text

from sutler.service.db.engine import connected
from sutler.service.db.errors import DatabaseError
from sutler.service.db.tables import LONGEST_BRIEF
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import ChanceDocument
from sutler.service.market.history import kept_in_full_since
from sutler.service.market.repository import SEEN
from sutler.solver.arrays import FloatArray
from sutler.solver.outlook.cells import estimates
from sutler.solver.outlook.chances import Prospect, Prospects
from sutler.solver.outlook.lives import HOUR_S, Lives, Slot, Spell, joined, watched

logger = logging.getLogger("sutler.market")

WINDOW: Final = timedelta(days=14)  # chosen: two weeks have seen every time of the week, and are read in seconds
MOST_ROWS: Final = (
    1_000_000  # chosen: read and learnt from in some seconds; a busy market tells as much in fewer days
)
FRESH_S: Final = 600.0  # chosen: what was learnt from two weeks is not moved by ten minutes
KEPT_S: Final = 3600.0  # chosen: an hour is little of the two weeks that are learnt from
PLANS_LOOKED_BACK: Final = 200  # chosen: a deployment that replans each hour has as many in a week
CARRIED_OUT: Final = timedelta(hours=1)  # chosen: who carries out a plan has rented its machines by then
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)  # numbers of GPUs that a divisible offer is rented by

# The three conditions are those of the indexes, as in settled.py. One row per machine and size, its offers joined.
_SPELLS: Final = text(f"""
    WITH kind AS (
        SELECT o.provider_id, o.machine_id, o.contract, o.gpu, o.gpus, bool_or(o.divisible) AS divisible,
               max(o.feed) AS feed, max(o.price_usd_per_hour) AS price, max(o.host_id) AS host,
               range_agg(o.valid) AS spells
        FROM offer o
        WHERE o.machine_id IS NOT NULL AND o.availability_basis = 'count' AND o.available > 0
          AND (upper(o.valid) IS NULL
               OR (upper(o.valid) - lower(o.valid) <= {LONGEST_BRIEF}
                   AND lower(o.valid) > CAST(:since AS timestamptz) - {LONGEST_BRIEF} AND upper(o.valid) > :since)
               OR (upper(o.valid) - lower(o.valid) > {LONGEST_BRIEF} AND o.valid && tstzrange(:since, :until)))
        GROUP BY 1, 2, 3, 4, 5
    )
    SELECT p.name AS provider, k.machine_id, k.contract, k.gpu, k.gpus, k.divisible, k.feed, k.price, k.host,
           s.starts, s.ends
    FROM kind k JOIN provider p ON p.id = k.provider_id CROSS JOIN LATERAL (
        SELECT array_agg(extract(epoch FROM lower(r))::float8 ORDER BY r) AS starts,
               array_agg(extract(epoch FROM upper(r))::float8 ORDER BY r) AS ends
        FROM unnest(k.spells) AS r) s
    ORDER BY p.name, k.machine_id, k.contract, k.gpu, k.gpus DESC
""")
_LOOKS: Final = text("""
    SELECT extract(epoch FROM q.at)::float8 AS at, q.covered FROM poll q JOIN provider p ON p.id = q.provider_id
    WHERE p.name = :provider AND q.outcome = ANY(:seen) AND q.at >= :since AND q.at <= :until ORDER BY q.at
""")
# Machines that deployments hold, or rented by a plan: when they went, if they went then, it was our doing.
_OURS: Final = text("""
    WITH taken AS (
        SELECT h->>'provider' AS provider, h->>'offer_id' AS offer_id,
               coalesce((h->>'started_at')::timestamptz, w.holdings_at) AS until, h->>'started_at' IS NULL AS is_vague
        FROM watch w, jsonb_array_elements(w.holdings) h
        WHERE jsonb_typeof(w.holdings) = 'array'
        UNION ALL
        SELECT r->>'provider', r->>'offer_id', p.created_at + CAST(:carried_out AS interval), false
        FROM (SELECT document, created_at FROM plan
              WHERE deployment_id IS NOT NULL AND status IN ('optimal', 'feasible') AND created_at >= :since
              ORDER BY created_at DESC LIMIT :most) p, json_array_elements(p.document::json->'rentals') r
    )
    SELECT DISTINCT t.provider, o.machine_id, extract(epoch FROM t.until)::float8 AS until, t.is_vague
    FROM taken t JOIN provider p ON p.name = t.provider
    JOIN offer o ON o.provider_id = p.id AND o.offer_id = t.offer_id AND o.machine_id IS NOT NULL
""")
# From when on so many offers were written at most.
_BUSY_SINCE: Final = text("""
    SELECT max(at) FROM (
        SELECT at, sum(opened) OVER (ORDER BY at DESC) AS written FROM poll WHERE at > :since AND at <= :until
    ) AS polls WHERE written > :most
""")

MachineName = tuple[str, str]
"""(provider, machine_id)."""


@dataclass(frozen=True, slots=True)
class Looks:
    """The polls that spoke of a feed: when, and up to which price; inf: of all offers."""

    at_s: FloatArray
    up_to_usd_per_hour: FloatArray

    def of_price(self, usd_per_hour: float) -> FloatArray:
        return self.at_s[self.up_to_usd_per_hour >= usd_per_hour]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was learnt from the store up to an instant."""

    at: datetime
    prospects: Prospects

    def of_offer(self, offer: OfferDocument, gpus: int, *, now: datetime, within_s: float) -> Prospect | None:
        """What is to be expected of at least `gpus` GPUs on the offer's machine `within_s` after now.

        The time since the offer was seen last counts too. None where no lives are known.
        """
        if offer.machine_id is None or offer.availability_basis not in ("count", None):
            return None
        slot = Slot(offer.provider, offer.gpu, offer.contract, gpus, offer.machine_id, offer.host_id)
        seen_at = min(offer.observed_at or self.at, now)
        ahead_s = within_s + (now - seen_at).total_seconds()
        return self.prospects.of(slot, at_s=seen_at.timestamp(), within_s=ahead_s)

    def chance_of(self, offer: OfferDocument, gpus: int, *, now: datetime, within_s: float) -> ChanceDocument | None:
        """The same as a plan states it."""
        found = self.of_offer(offer, gpus, now=now, within_s=within_s)
        if found is None:
            return None
        return ChanceDocument(
            chance_of_still_there_fraction=found.is_there.fraction,
            low_fraction=found.is_there.low_fraction,
            high_fraction=found.is_there.high_fraction,
            within_s=within_s,
            expected_lifetime_s=found.expected_lifetime_h * HOUR_S,
            machines=found.machines,
            lives=found.lives,
            deaths=found.deaths,
        )


class OutlookCache:
    """What was learnt last, for all threads of a process.

    Nobody waits for the news: who asks some minutes later gets what is known, while a thread of its own learns anew.
    Only who asks first, or after a long silence, waits.
    """

    def __init__(self) -> None:
        self._learning = threading.Lock()
        self._found: tuple[float, Outlook] | None = None

    def get(self, engine: Engine, now: datetime) -> Outlook:
        """Raises DatabaseError."""
        known = self._known(KEPT_S)
        if known is None:
            with self._learning:
                return self._known(KEPT_S) or self._learn(engine, now)
        if self._known(FRESH_S) is None and self._learning.acquire(blocking=False):
            threading.Thread(target=self._learn_aside, args=(engine, now), daemon=True, name="outlook").start()
        return known

    def _known(self, most_age_s: float) -> Outlook | None:
        found = self._found
        return found[1] if found is not None and monotonic() - found[0] <= most_age_s else None

    def _learn(self, engine: Engine, now: datetime) -> Outlook:
        with connected(engine, isolation_level="REPEATABLE READ") as connection:
            lives = lives_of(connection, now)
        learnt = Outlook(now, Prospects(estimates(lives)))
        self._found = (monotonic(), learnt)
        return learnt

    def _learn_aside(self, engine: Engine, now: datetime) -> None:
        """Holds the lock that `get` has taken, and gives it back."""
        try:
            self._learn(engine, now)
        except DatabaseError as error:
            logger.warning("the outlook stays as it was learnt before: %s", error)
        finally:
            self._learning.release()


def lives_of(connection: Connection, now: datetime, window: timedelta = WINDOW) -> Lives:
    """The lives of all machines over the last days, as far as offers are kept one by one, and of so many at most."""
    kept_since = kept_in_full_since(connection)
    since = now - window if kept_since is None else max(now - window, kept_since)
    busy_since = connection.scalar(_BUSY_SINCE, {"since": since, "until": now, "most": MOST_ROWS})
    asked = {"since": busy_since or since, "until": now}
    rows = connection.execute(_SPELLS, asked).all()
    ours = _ours(connection, asked)
    parts: list[Lives] = []
    for provider, own in groupby(rows, key=lambda row: row.provider):
        looks = _looks(connection, provider, asked)
        parts.extend(_watched(_slots(own, ours), looks))
    return joined(parts)


def _watched(slots: Iterable[tuple[Slot, list[Spell], str, float]], looks: "_LooksOf") -> Iterator[Lives]:
    """Slots that the same polls spoke of are looked at together."""
    together: dict[tuple[str, float], list[tuple[Slot, list[Spell]]]] = defaultdict(list)
    for slot, spells, feed, price in slots:
        together[feed, price if looks.is_cut(feed) else 0.0].append((slot, spells))
    for (feed, price), found in together.items():
        names, spells_of = zip(*found, strict=True)
        yield watched(names, spells_of, looks.of(feed).of_price(price))


class _LooksOf:
    """The polls of one provider, by feed."""

    def __init__(self, polls: Sequence[tuple[float, Sequence[tuple[str, float | None]]]]) -> None:
        self._polls = polls
        self._known: dict[str, Looks] = {}

    def of(self, feed: str) -> Looks:
        if feed not in self._known:
            spoke = [
                (at, max((inf if up_to is None else up_to) for up_to in bounds))
                for at, covered in self._polls
                if (bounds := [up_to for prefix, up_to in covered if feed.startswith(prefix)])
            ]
            self._known[feed] = Looks(np.array([at for at, _ in spoke]), np.array([up_to for _, up_to in spoke]))
        return self._known[feed]

    def is_cut(self, feed: str) -> bool:
        return not bool(np.isinf(self.of(feed).up_to_usd_per_hour).all())


def _looks(connection: Connection, provider: str, asked: Mapping[str, Any]) -> _LooksOf:
    rows = connection.execute(_LOOKS, {**asked, "provider": provider, "seen": list(SEEN)})
    return _LooksOf([(row.at, row.covered) for row in rows])


def _ours(connection: Connection, asked: Mapping[str, Any]) -> dict[MachineName, list[tuple[float, bool]]]:
    values = {**asked, "carried_out": CARRIED_OUT, "most": PLANS_LOOKED_BACK}
    found: dict[MachineName, list[tuple[float, bool]]] = defaultdict(list)
    for row in connection.execute(_OURS, values):
        found[row.provider, row.machine_id].append((row.until, row.is_vague))
    return found


def _slots(
    rows: Iterable[Any], ours: Mapping[MachineName, Sequence[tuple[float, bool]]]
) -> Iterator[tuple[Slot, list[Spell], str, float]]:
    """A slot for every size that a machine is rented by: it is there while any offer of that size or more is."""
    for (machine, contract, gpu), own in groupby(rows, key=lambda row: (row.machine_id, row.contract, row.gpu)):
        sizes = list(own)
        host = max((row.host for row in sizes if row.host is not None), default=None)
        spells: list[tuple[float, float]] = []
        asked = {row.gpus for row in sizes} | {s for row in sizes if row.divisible for s in SIZES if s < row.gpus}
        for gpus in sorted(asked, reverse=True):
            new = [row for row in sizes if row.gpus == gpus]
            for row in new:
                ends = (inf if end is None else end for end in row.ends)
                spells = _union([*spells, *zip(row.starts, ends, strict=True)])
            about = new[0] if new else next(row for row in reversed(sizes) if row.gpus > gpus)
            slot = Slot(about.provider, gpu, contract, gpus, machine, host)
            taken = ours.get((about.provider, machine), ())
            yield slot, [_spell(spell, spells[-1], taken) for spell in spells], about.feed, about.price


def _union(spells: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Joins what overlaps or touches."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spells):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _spell(spell: tuple[float, float], last: tuple[float, float], taken: Sequence[tuple[float, bool]]) -> Spell:
    """It ended by us where that was about when we rented it; where that is not known, where it was the last."""
    margin_s = CARRIED_OUT / timedelta(seconds=1)
    is_ours = any(abs(spell[1] - until) <= margin_s or (is_vague and spell == last) for until, is_vague in taken)
    return Spell(*spell, is_ours=is_ours)
