"""The whole schedule: every provider is polled when it is due, old history is pruned once a day.

When a provider is due is stored, so several instances share one schedule and a restart forgets nothing. A job never
overlaps itself, and one that fails is tried again, the failure logged.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from time import monotonic
from typing import Final

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler

from sutler.adapters.config import Provider
from sutler.service.db.errors import DatabaseError
from sutler.service.market.backoff import LONGEST_DOUBLING
from sutler.service.market.repository import PollReport
from sutler.service.market.service import MOST_POLLS_AT_ONCE, MarketService

logger = logging.getLogger("sutler.jobs")

TICK_S: Final = 1.0  # chosen: a poll begins at most so much late
LOOK_AGAIN_S: Final = 5.0  # chosen: about as long as another instance's poll takes
LONGEST_LOOK_AGAIN_S: Final = 1800.0  # chosen: a store that works again is used within half an hour
PRUNE_HOUR_UTC: Final = 3  # chosen: night in Europe, evening in America


def schedule(market: MarketService, *, history_days: float, now: Callable[[], datetime]) -> BaseScheduler:
    """A scheduler, not started yet, with a job per provider that is set up."""
    scheduler = BackgroundScheduler(
        timezone="UTC",
        executors={"default": ThreadPoolExecutor(MOST_POLLS_AT_ONCE + 1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
    )
    for provider in market.providers():
        name = f"poll {provider.name}"
        job = _PollJob(market, provider, now)
        scheduler.add_job(job.run, "interval", seconds=TICK_S, next_run_time=now(), id=name, name=name)
    scheduler.add_job(
        _prune, "cron", hour=PRUNE_HOUR_UTC, args=(market, history_days), id="prune", name="prune old history"
    )
    return scheduler


class _PollJob:
    """Polls one provider when it is due, and until then remembers that it is not.

    A job must not put itself on the schedule: the scheduler's shutdown holds the lock for that while it waits for
    the jobs under way, and a job that is still counted as running is dropped for good.
    """

    def __init__(self, market: MarketService, provider: Provider, now: Callable[[], datetime]) -> None:
        self._market, self._provider, self._now = market, provider, now
        self._failures = 0
        self._look_again_at_s = 0.0

    def run(self) -> None:
        if monotonic() < self._look_again_at_s:
            return
        try:
            report = self._market.poller.poll_if_due(self._provider)
            if report is not None:
                log_poll(report)
            wait_s = self._wait_s()
            self._failures = 0
        except DatabaseError as error:
            logger.error("%s: %s", self._provider.name, error)
            wait_s = self._wait_after_failure_s()
        except Exception:
            logger.exception("%s: the poll failed by our fault", self._provider.name)
            wait_s = self._wait_after_failure_s()
        self._look_again_at_s = monotonic() + wait_s

    def _wait_after_failure_s(self) -> float:
        """What cannot be stored must not be asked for again at once: the cloud counts its requests all the same."""
        self._failures += 1
        wait_s = self._market.poller.interval_s(self._provider) * 2.0 ** min(self._failures - 1, LONGEST_DOUBLING)
        return min(wait_s, LONGEST_LOOK_AGAIN_S)

    def _wait_s(self) -> float:
        """Seconds until it is due; a little while where another instance is polling now."""
        due_at = self._market.poller.next_poll_at(self._provider)
        due_in_s = 0.0 if due_at is None else (due_at - self._now()).total_seconds()
        return due_in_s if due_in_s > 0 else LOOK_AGAIN_S


def log_poll(report: PollReport) -> None:
    """Logs one line per poll; a poll without a usable answer is a warning."""
    level = logging.INFO if report.poll.is_usable else logging.WARNING
    logger.log(
        level,
        "%s: %s, kept %d, rejected %d, changed %d in %.1f s%s",
        report.provider,
        report.poll.outcome,
        report.poll.kept,
        len(report.poll.rejected),
        report.opened + report.closed,
        report.seconds,
        f": {report.poll.detail}" if report.poll.detail else "",
    )


def _prune(market: MarketService, history_days: float) -> None:
    try:
        done = market.prune(history_days)
    except DatabaseError as error:
        logger.error("prune: %s", error)
        return
    logger.info("pruned: %d hours rolled up, %d rows deleted", done.hours, done.rows_deleted)
