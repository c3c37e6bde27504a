"""What is kept for a while only: answers to named requests, counts of changes, deliveries, jobs that failed.

Plans, deployments and the audit log are kept; the market's history has a retention of its own.
"""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth.repository import forget_old_use
from sutler.service.deployments.replanning import repository as replanning
from sutler.service.deployments.traffic import repository as traffic
from sutler.service.web import idempotency
from sutler.service.webhooks import repository as webhooks

EVERY_S: Final = 600.0  # chosen: what is kept for an hour goes soon after; each costs a few deletions
USE_KEPT: Final = timedelta(hours=1)  # changes and reads are counted by the minute
DELIVERIES_KEPT: Final = timedelta(days=30)  # chosen: what a receiver has lost can be replayed for a month
JOBS_KEPT: Final = timedelta(days=7)  # chosen: a failed job can be looked into for a week

_OLD_JOBS: Final = text("""
    DELETE FROM procrastinate_jobs j WHERE j.status IN ('succeeded', 'failed', 'cancelled', 'aborted')
    AND NOT EXISTS (SELECT 1 FROM procrastinate_events e WHERE e.job_id = j.id AND e.at > :before)
""")


async def tidy(connection: AsyncConnection, now: datetime) -> None:
    """Forgets what is old enough. Several may do it at once."""
    await idempotency.forget_old(connection, now)
    await forget_old_use(connection, now - USE_KEPT)
    await webhooks.forget_old(connection, now - DELIVERIES_KEPT)
    await traffic.forget_old(connection, now - traffic.KEPT)
    await replanning.forget_old(connection, now - replanning.DECISIONS_KEPT)
    await connection.execute(_OLD_JOBS, {"before": now - JOBS_KEPT})
