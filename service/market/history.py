"""How many GPUs of a type were for rent, and at which price, over time: sampled from the offers' intervals.

What is older than the kept history comes from the hours it was rolled up into (`retention`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, TextClause, text

from sutler.service.db.engine import connected
from sutler.service.db.tables import OFFERED_AT

USUAL_SILENCE: Final = timedelta(hours=1)  # chosen: some failed polls leave no gap

# One statement per index: joined in one, PostgreSQL would read the whole table for each instant.
OFFERED: Final = " UNION ALL ".join(f"SELECT * FROM offer WHERE {one.format(at='i.at')}" for one in OFFERED_AT)

# A provider's market is known for a while after it answered; then it is stale and counts no more, as in planning.
KNOWN: Final = """
    SELECT i.at, p.id AS provider_id FROM instant i CROSS JOIN provider p
    WHERE EXISTS (SELECT 1 FROM poll q WHERE q.provider_id = p.id AND q.outcome IN ('ok', 'partial')
                  AND q.at <= i.at AND q.at > i.at - CAST(:silence AS interval))
"""

# GPUs of a machine are its distinct cards over all its offers, never the sum of overlapping slices; an offer without
# a machine counts as often as it is available. MATERIALIZED is what PostgreSQL, which cannot tell how little it is,
# would otherwise make anew for each row that it is joined with.
SUPPLY: Final = """
WITH instant AS (SELECT unnest(CAST(:instants AS timestamptz[])) AS at),
known AS MATERIALIZED ({known}),
seen AS (
    SELECT i.at, o.provider_id, o.gpu, o.contract, o.gpu_ids, o.price_usd_per_hour / o.gpus AS usd,
           coalesce('m/' || o.machine_id, 'o/' || o.offer_id) AS machine,
           CASE WHEN o.machine_id IS NULL THEN o.gpus * o.available ELSE coalesce(o.machine_gpus, o.gpus) END AS gpus,
           o.machine_gpus AS stated
    FROM instant i CROSS JOIN LATERAL ({offered}) AS o JOIN known k ON k.at = i.at AND k.provider_id = o.provider_id
    WHERE o.available > 0 {condition}
),
machines AS (
    SELECT s.at, s.provider_id, s.gpu, s.contract, s.machine,
           CASE WHEN bool_and(s.gpu_ids IS NOT NULL) THEN least(nullif(count(DISTINCT c.card), 0), min(s.stated))
                ELSE greatest(max(s.gpus), count(DISTINCT c.card)) END AS gpus
    FROM seen s LEFT JOIN LATERAL unnest(s.gpu_ids) AS c(card) ON true GROUP BY 1, 2, 3, 4, 5
),
supply AS MATERIALIZED (SELECT at, {group}, sum(gpus)::int AS gpus FROM machines GROUP BY at, {group}),
price AS MATERIALIZED (
    SELECT at, {group}, count(*)::int AS offers, min(usd) AS least,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY usd) AS median
    FROM seen GROUP BY at, {group}
)
SELECT at, {group}, gpus, offers, least, median FROM supply JOIN price USING (at, {group})
""".replace("{offered}", OFFERED).replace("{known}", KNOWN)

OF_THESE_PROVIDERS: Final = "(CAST(:providers AS text[]) = '{}' OR p.name = ANY(:providers))"

ROLLED_UP: Final = f"""
SELECT g.gpu, h.hour, sum(h.samples) AS samples, coalesce(sum(m.gpus_mean), 0) AS gpus,
       min(m.least_usd_per_gpu_hour) AS least,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY m.median_usd_per_gpu_hour) AS median
FROM polled_hour h JOIN provider p ON p.id = h.provider_id CROSS JOIN unnest(CAST(:gpus AS text[])) AS g(gpu)
LEFT JOIN market_hour m
       ON m.provider_id = h.provider_id AND m.hour = h.hour AND m.gpu = g.gpu AND m.contract = :contract
WHERE h.hour = ANY(:hours) AND {OF_THESE_PROVIDERS}
GROUP BY g.gpu, h.hour
"""

POLLED: Final = f"""
WITH instant AS (SELECT unnest(CAST(:instants AS timestamptz[])) AS at), known AS ({KNOWN})
SELECT DISTINCT k.at FROM known k JOIN provider p ON p.id = k.provider_id WHERE {OF_THESE_PROVIDERS}
"""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The supply of a GPU at an instant; `gpus` is None where nobody had looked shortly before."""

    at: datetime
    gpus: float | None
    offers: int | None
    least_usd_per_gpu_hour: float | None
    median_usd_per_gpu_hour: float | None


def price_history(
    engine: Engine,
    gpu: str,
    *,
    contract: str,
    since: datetime,
    until: datetime,
    points: int,
    providers: Sequence[str] = (),
    silence: timedelta = USUAL_SILENCE,
) -> list[HistoryPoint]:
    """Takes `points` samples from `since` to `until`, both included. Raises DatabaseError.

    What a provider said holds for `silence`; after that it is unknown.
    """
    found = price_histories(
        engine,
        [gpu],
        contract=contract,
        since=since,
        until=until,
        points=points,
        providers=providers,
        silence=silence,
    )
    return found[gpu]


def price_histories(
    engine: Engine,
    gpus: Sequence[str],
    *,
    contract: str,
    since: datetime,
    until: datetime,
    points: int,
    providers: Sequence[str] = (),
    silence: timedelta = USUAL_SILENCE,
) -> dict[str, list[HistoryPoint]]:
    """Takes such samples of several GPUs, in less time than one after the other. Raises DatabaseError."""
    step = (until - since) / max(1, points - 1)
    instants = [since + step * i for i in range(points)]
    asked = {"gpus": list(gpus), "contract": contract, "providers": list(providers), "silence": silence}
    with connected(engine) as connection:
        kept_since = kept_in_full_since(connection)
        old = [at for at in instants if kept_since is not None and at < kept_since]
        recent = {"instants": instants[len(old) :], **asked}
        hours = _hours(connection, old, asked)
        supply = {(row.gpu, row.at): row for row in connection.execute(_supply_of_gpus(), recent)}
        polled = {row.at for row in connection.execute(text(POLLED), recent)}
    return {
        gpu: [_point_of_hour(at, hours.get((gpu, _hour(at)))) for at in old]
        + [_point(at, supply.get((gpu, at)), is_known=at in polled) for at in instants[len(old) :]]
        for gpu in gpus
    }


def kept_in_full_since(connection: Connection) -> datetime | None:
    """Returns the end of what was rolled up; None where nothing was yet."""
    found: datetime | None = connection.scalar(text("SELECT max(hour) + interval '1 hour' FROM polled_hour"))
    return found


def _supply_of_gpus() -> TextClause:
    condition = f"""AND o.gpu = ANY(:gpus) AND o.contract = :contract
        AND o.provider_id IN (SELECT p.id FROM provider p WHERE {OF_THESE_PROVIDERS})"""
    return text(SUPPLY.replace("{condition}", condition).replace("{group}", "gpu"))


def _hours(
    connection: Connection, instants: list[datetime], asked: dict[str, Any]
) -> dict[tuple[str, datetime], Any]:
    hours = sorted({_hour(at) for at in instants})
    return {(row.gpu, row.hour): row for row in connection.execute(text(ROLLED_UP), {**asked, "hours": hours})}


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _point_of_hour(at: datetime, hour: Any) -> HistoryPoint:
    if hour is None or not hour.samples:
        return HistoryPoint(at, None, None, None, None)
    return HistoryPoint(at, float(hour.gpus), None, hour.least, hour.median)


def _point(at: datetime, supply: Any, *, is_known: bool) -> HistoryPoint:
    if not is_known:
        return HistoryPoint(at, None, None, None, None)
    if supply is None:
        return HistoryPoint(at, 0.0, 0, None, None)
    return HistoryPoint(at, float(supply.gpus), supply.offers, supply.least, supply.median)
