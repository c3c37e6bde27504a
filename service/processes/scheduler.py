"""The scheduler's process: polls every cloud when it is due, and prunes what is old."""

import logging
from datetime import UTC, datetime

from sutler.service.main import opened_market
from sutler.service.processes.ending import noted, signals_to_end
from sutler.service.processes.heart import Tell, beat_beside
from sutler.service.settings import store_settings
from sutler.service.workers.schedule import schedule

logger = logging.getLogger("sutler.scheduler")


def run(tell: Tell) -> None:
    """Polls until SIGTERM or SIGINT; polls under way are finished first. `tell` gives signs of life."""
    beat_beside(tell)
    until_told_to_end = noted(signals_to_end())
    with opened_market() as market:
        scheduler = schedule(market, history_days=store_settings().history_days, now=lambda: datetime.now(UTC))
        scheduler.start()
        logger.info("polling %s", ", ".join(provider.name for provider in market.providers()) or "no cloud")
        until_told_to_end()
        logger.info("stopping: polls under way are finished first")
        scheduler.shutdown(wait=True)
