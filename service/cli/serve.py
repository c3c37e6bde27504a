"""`sutler serve`: keeps the store's market up to date until it is stopped."""

import signal
import threading
from typing import Annotated, Literal

import typer

from service.cli.exits import guarded


@guarded
def serve(
    role: Annotated[
        Literal["all", "scheduler"], typer.Option(help="What this process does: all of it, or polling alone.")
    ] = "all",
) -> None:
    """Poll every cloud that is set up when it is due, and prune old history, until SIGINT or SIGTERM.

    Several processes may run on one database: no cloud is polled twice.
    """
    import logging
    from datetime import UTC, datetime

    from service.jobs import schedule
    from service.main import opened_market
    from service.settings import store_settings

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("sutler").setLevel(logging.INFO)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    log = logging.getLogger("sutler.serve")
    with opened_market() as market:
        scheduler = schedule(market, history_days=store_settings().history_days, now=lambda: datetime.now(UTC))
        scheduler.start()
        log.info("%s: polling %s", role, ", ".join(provider.name for provider in market.providers()))
        stop.wait()
        log.info("stopping: polls under way are finished first")
        scheduler.shutdown(wait=True)
