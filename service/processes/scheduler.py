"""The scheduler's process: polls every cloud when it is due, and prunes what is old."""

import logging
import signal
import threading
from datetime import UTC, datetime

from service.jobs import schedule
from service.main import opened_market
from service.processes.ending import signals_to_end
from service.settings import store_settings

logger = logging.getLogger("sutler.scheduler")


def run() -> None:
    """Until SIGTERM or SIGINT; polls under way are finished first."""
    stop = threading.Event()
    for number in signals_to_end():
        signal.signal(number, lambda *_: stop.set())
    with opened_market() as market:
        scheduler = schedule(market, history_days=store_settings().history_days, now=lambda: datetime.now(UTC))
        scheduler.start()
        logger.info("polling %s", ", ".join(provider.name for provider in market.providers()) or "no cloud")
        stop.wait()
        logger.info("stopping: polls under way are finished first")
        scheduler.shutdown(wait=True)
