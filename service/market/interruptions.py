"""How often rented machines were taken away, as reports of what is held have told: read from the store and learnt.

A machine counts from the report that first named it to the one that named it no more; while it is held, to the last
report of its deployment: nobody has said since that it runs.
"""

from collections import defaultdict
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from sutler.solver.outlook.interruptions import LearntRate, Rented, learnt

INCIDENT_S: Final = 300.0  # chosen: consumers report within minutes, and what is lost at once is seen by several
_RENTED: Final = text("""
    WITH held AS (
        SELECT l.*, greatest(extract(epoch FROM
            least(coalesce(l.ended_at, w.holdings_at, l.began_at), :now) - l.began_at), 0)::float8 / 3600 AS hours
        FROM rental_life l LEFT JOIN watch w ON w.deployment_id = l.deployment_id
        WHERE l.began_at <= :now
    )
    SELECT provider, contract, gpu, sum(count * hours) AS machine_hours,
           coalesce(sum(count) FILTER (WHERE is_lost AND ended_at <= :now), 0)::int AS losses,
           coalesce(sum(count * count * hours) / nullif(sum(count * hours), 0), 1) AS fleet
    FROM held GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
""")
_INCIDENTS: Final = text("""
    SELECT contract, sum(count)::int AS size FROM rental_life
    WHERE is_lost AND ended_at <= :now
    GROUP BY contract, provider, floor(extract(epoch FROM ended_at) / :incident_s)
""")


def interruptions_at(connection: Connection, now: datetime) -> tuple[LearntRate, ...]:
    """What was learnt up to an instant of every kind of machine that was held, the narrowest first."""
    kinds = [Rented(**row._mapping) for row in connection.execute(_RENTED, {"now": now})]
    incidents: dict[str, list[int]] = defaultdict(list)
    for row in connection.execute(_INCIDENTS, {"now": now, "incident_s": INCIDENT_S}):
        incidents[row.contract].append(row.size)
    return learnt(kinds, incidents)
