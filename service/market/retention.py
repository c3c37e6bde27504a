"""Old history: rolled up into hours, then deleted, so that the store stays of bounded size.

What is for rent now is never touched, however old; neither is what is younger than the kept history.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, Engine, text

from sutler.service.db.engine import connected, transaction
from sutler.service.market.history import KNOWN, SUPPLY, USUAL_SILENCE, kept_in_full_since
from sutler.service.market.repository import POLLS_LOOKED_BACK, USABLE

SAMPLES_PER_HOUR: Final = 4  # chosen: what was scarce for a quarter of an hour still shows in an hour's mean
HOURS_AT_ONCE: Final = 24  # one transaction a day of history: short enough to be interrupted
HOURS_KEPT: Final = timedelta(days=730)  # chosen: two years, so that every season can be compared with its last

OLDEST: Final = """
SELECT date_trunc('hour', least((SELECT min(lower(valid)) FROM offer), (SELECT min(at) FROM poll)))
"""
POLLED_HOURS: Final = f"""
WITH instant AS (SELECT unnest(CAST(:instants AS timestamptz[])) AS at), known AS ({KNOWN})
INSERT INTO polled_hour (provider_id, hour, samples)
SELECT p.id, date_trunc('hour', i.at), count(k.at)
FROM instant i CROSS JOIN provider p LEFT JOIN known k ON k.at = i.at AND k.provider_id = p.id
GROUP BY 1, 2
"""
ROLL_UP: Final = f"""
INSERT INTO market_hour (provider_id, gpu, contract, hour, gpus_mean, gpus_least, gpus_most,
                         least_usd_per_gpu_hour, median_usd_per_gpu_hour)
SELECT s.provider_id, gpu, contract, h.hour, sum(gpus)::float / h.samples,
       CASE WHEN count(*) < h.samples THEN 0 ELSE min(gpus) END, max(gpus), min(least),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY median)
FROM ({SUPPLY.replace("{condition}", "").replace("{group}", "provider_id, gpu, contract")}) AS s
JOIN polled_hour h ON h.provider_id = s.provider_id AND h.hour = date_trunc('hour', s.at)
GROUP BY s.provider_id, gpu, contract, h.hour, h.samples
"""
# The last polls before stay: they say when the offers of the history that stays were last seen.
DELETE: Final = (
    "DELETE FROM offer WHERE upper(valid) <= :until",
    "DELETE FROM rejected_row WHERE upper(valid) <= :until",
    """DELETE FROM poll USING (
           SELECT id, row_number() OVER (PARTITION BY provider_id, outcome = ANY(:usable) ORDER BY at DESC) AS nth
           FROM poll WHERE at < :until
       ) AS old
       WHERE poll.id = old.id AND old.nth > :looked_back""",
    "DELETE FROM market_hour WHERE hour < :hours_until",
    "DELETE FROM polled_hour WHERE hour < :hours_until",
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning did."""

    until: datetime
    hours: int
    rows_deleted: int


def prune(engine: Engine, *, now: datetime, history_days: float, silence: timedelta = USUAL_SILENCE) -> Pruned:
    """Rolls up and deletes what ended more than `history_days` ago. Raises DatabaseError.

    Each day is one transaction: what is interrupted goes on the next time. Hours are kept for `HOURS_KEPT` more.
    """
    until = (now - timedelta(days=history_days)).replace(minute=0, second=0, microsecond=0)
    hours = 0
    start = _start(engine)
    while start is not None and start < until:
        end = min(start + timedelta(hours=HOURS_AT_ONCE), until)
        with transaction(engine) as connection:
            _roll_up(connection, start, end, silence)
        hours += int((end - start) / timedelta(hours=1))
        start = end
    asked = {
        "until": until,
        "hours_until": until - HOURS_KEPT,
        "usable": list(USABLE),
        "looked_back": POLLS_LOOKED_BACK,
    }
    with transaction(engine) as connection:
        deleted = sum(connection.execute(text(statement), asked).rowcount for statement in DELETE)
    return Pruned(until, hours, deleted)


def _start(engine: Engine) -> datetime | None:
    """Returns the first hour that is not rolled up yet, or None where nothing was ever polled."""
    with connected(engine) as connection:
        kept_since = kept_in_full_since(connection)
        oldest: datetime | None = connection.scalar(text(OLDEST))
    return kept_since or oldest


def _roll_up(connection: Connection, start: datetime, end: datetime, silence: timedelta) -> None:
    step = timedelta(hours=1) / SAMPLES_PER_HOUR
    samples = int((end - start) / step)
    asked = {"instants": [start + step * i for i in range(samples)], "silence": silence}
    connection.execute(text(POLLED_HOURS), asked)
    connection.execute(text(ROLL_UP), asked)
