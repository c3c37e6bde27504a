"""How soon those who wait for a plan have it, and whether each has it once."""

import time
from collections import defaultdict
from datetime import datetime
from statistics import median
from typing import Final, TypedDict

from benchmarks.service_conditions import holding, long_polls
from benchmarks.service_polls import Told, Wish, doubled
from tests.service.running import Running, finished, until

SETTLE_S: Final = 0.5


class Wakes(TypedDict):
    """The seconds of each replanning from the plan's `created_at`, just before its commit, until the first, median
    and the last client has it.

    `untold`: clients that missed a plan; `doubled`: that were told one twice; `errors` of all polls.
    """

    clients: int
    first_s: list[float]
    median_s: list[float]
    last_s: list[float]
    untold: int
    doubled: int
    errors: dict[str, int]


def measured_wakes(running: Running, wish: Wish, *, times: int) -> Wakes:
    """Replans the deployment of the wish so often, with all its clients waiting each time."""
    with holding(running, wish) as held:
        made = dict(_replanned(running, wish) for _ in range(times))
    return wakes_of(held.told, made, clients=wish["clients"])


def _replanned(running: Running, wish: Wish) -> tuple[int, float]:
    """The new revision, and when it was made (seconds since 1970)."""
    job = running.post(wish["target"].replace("/plan", "/replan"))
    assert job.status_code == 202, job.text
    plan = finished(running, job.headers["Location"])
    time.sleep(SETTLE_S)  # whoever is told twice is told by now
    until(lambda: long_polls(running) == wish["clients"])
    return plan["revision"], datetime.fromisoformat(plan["created_at"]).timestamp()


def wakes_of(told: Told, made: dict[int, float], *, clients: int) -> Wakes:
    """`made`: when each revision was. Raises ValueError where a plan reached nobody."""
    heard: dict[int, list[float]] = defaultdict(list)
    for news in told["news"]:
        heard[news["revision"]].append(news["at_s"])
    if not all(heard[revision] for revision in made):
        raise ValueError("a plan reached nobody who waited for it")
    after = [[at_s - made[revision] for at_s in heard[revision]] for revision in made]
    distinct = {(news["client"], news["revision"]) for news in told["news"] if news["revision"] in made}
    return Wakes(
        clients=clients,
        first_s=[min(seconds) for seconds in after],
        median_s=[median(seconds) for seconds in after],
        last_s=[max(seconds) for seconds in after],
        untold=clients * len(made) - len(distinct),
        doubled=doubled(told),
        errors=told["errors"],
    )
