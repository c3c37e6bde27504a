"""Offers over a stretch of time: what held through it, at which prices; and what an offer was when last seen."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, TextClause, text

from sutler.service.db.tables import DAY_BEGUN, LONGEST_BRIEF
from sutler.service.documents.market import OfferDocument
from sutler.service.market.repository import OFFER_FIELDS

OfferId = tuple[str, str, str]
"""(provider, offer_id, contract)."""

SLACK_S: Final = 1.0  # chosen: more than the rounding of instants loses, less than the pause between polls

# Three conditions for three indexes, as in OFFERED_AT: what is for rent now, what was over within the hour, the rest.
_SETTLED: Final = text(f"""
    SELECT p.name, o.offer_id, o.contract,
        max(o.price_usd_per_hour / o.gpus) AS high,
        min(o.price_usd_per_hour / o.gpus) AS low,
        min(o.available) AS available,
        sum(extract(epoch FROM
            least(coalesce(upper(o.valid), :until), :until) - greatest(lower(o.valid), :since))) AS s
    FROM offer o JOIN provider p ON p.id = o.provider_id
    WHERE upper(o.valid) IS NULL
       OR (upper(o.valid) - lower(o.valid) <= {LONGEST_BRIEF}
           AND lower(o.valid) > CAST(:since AS timestamptz) - {LONGEST_BRIEF} AND upper(o.valid) > :since)
       OR (upper(o.valid) - lower(o.valid) > {LONGEST_BRIEF} AND o.valid && tstzrange(:since, :until))
    GROUP BY p.name, o.offer_id, o.contract HAVING bool_or(upper(o.valid) IS NULL)
""")

# Without its machine and cards: what was rented names none, since nobody else can take a slice of it.
_KEY_AND_PLACE: Final = ("offer_id", "contract", "feed", "machine_id", "machine_gpus", "gpu_ids")
_FIGURES: Final = ", ".join(f"o.{name}" for name in OFFER_FIELDS if name not in _KEY_AND_PLACE)
# One of uq_offer_open, or the newest of ix_offer_past where there is none: never the whole history.
_LAST: Final = f"""
    FROM unnest(CAST(:providers AS text[]), CAST(:offers AS text[]), CAST(:contracts AS text[]))
        AS asked (provider, offer_id, contract)
    JOIN provider p ON p.name = asked.provider
    LEFT JOIN LATERAL (
        SELECT id FROM offer
        WHERE provider_id = p.id AND offer_id = asked.offer_id AND contract = asked.contract
          AND upper(valid) IS NULL) held ON true
    LEFT JOIN LATERAL (
        SELECT id FROM offer
        WHERE held.id IS NULL AND provider_id = p.id AND offer_id = asked.offer_id AND contract = asked.contract
          AND upper(valid) IS NOT NULL
        ORDER BY {DAY_BEGUN} DESC, lower(valid) DESC LIMIT 1) past ON true
    JOIN offer o ON o.id = coalesce(held.id, past.id)
"""
_LAST_KNOWN: Final = text(f"SELECT asked.provider, asked.offer_id, asked.contract, {_FIGURES} {_LAST}")
_LAST_PLACES: Final = text(f"""
    SELECT asked.provider, asked.offer_id, asked.contract, o.gpu, o.gpus, o.available, o.price_usd_per_hour,
        o.divisible, o.machine_id, o.machine_gpus, o.host_id, o.region {_LAST}
""")


def settled(connection: Connection, *, since: datetime, until: datetime) -> dict[OfferId, tuple[float, float, int]]:
    """Returns what was for rent all that time: highest and lowest USD per GPU and hour, least available."""
    length_s = (until - since).total_seconds()
    rows: Any = connection.execute(_SETTLED, {"since": since, "until": until})
    return {
        (row.name, row.offer_id, row.contract): (row.high, row.low, row.available)
        for row in rows
        if float(row.s) >= length_s - SLACK_S
    }


def last_known(connection: Connection, offers: Collection[OfferId]) -> dict[OfferId, OfferDocument]:
    """Returns the offers as they were when they were last for rent; without those that never were."""
    return _last(connection, offers, _LAST_KNOWN)


def last_places(connection: Connection, offers: Collection[OfferId]) -> dict[OfferId, OfferDocument]:
    """Returns which machines the offers were of when they were last for rent, and little else of them."""
    return _last(connection, offers, _LAST_PLACES)


def _last(connection: Connection, offers: Collection[OfferId], wanted: TextClause) -> dict[OfferId, OfferDocument]:
    if not offers:
        return {}
    providers, ids, contracts = zip(*sorted(set(offers)), strict=True)
    rows = connection.execute(
        wanted, {"providers": list(providers), "offers": list(ids), "contracts": list(contracts)}
    )
    return {(row.provider, row.offer_id, row.contract): OfferDocument(**row._mapping) for row in rows}
