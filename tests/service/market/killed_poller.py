"""Polls a generated market into a database until it is killed, again and again: run as a process of its own.

    python -m tests.service.market.killed_poller URL SEED ROUNDS          kills at random moments
    python -m tests.service.market.killed_poller URL SEED STATEMENT ...   kills right after these statements, in turn

Each round is a process that is killed with SIGKILL; the last one, which nobody kills, polls twice.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event

from sutler.adapters.base import Offer, Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.settings import StoreSettings
from tests.service.market.builders import CONFIG, NORTH, a_rejected_row, an_answer, an_offer

LONGEST_LIFE_S: Final = 0.35
NEVER_KILLED_S: Final = 10.0


@dataclass
class LivingMarket:
    """A third of the offers change from poll to poll, some come and some go."""

    chance: random.Random
    offers: dict[int, Offer] = field(default_factory=dict)

    def fetch(self, _: Provider, __: ProviderConfig) -> Poll:
        for number in self.chance.sample(range(300), 100):
            if self.chance.random() < 0.3:
                self.offers.pop(number, None)
            else:
                self.offers[number] = an_offer(f"o{number}", round(self.chance.uniform(0.1, 9.0), 2))
        row = a_rejected_row(f"r{self.chance.randrange(20)}")
        return an_answer(*self.offers.values(), rejected=(row,))


def poll_forever(
    url: str, seed: int, *, polls: int = 1_000_000, watch: Callable[[Engine], None] | None = None
) -> None:
    engine = open_store(StoreSettings(data_dir=Path("unused"), database_url=url))
    if watch is not None:
        watch(engine)
    poller = Poller(engine, {"north": CONFIG}, fetch=LivingMarket(random.Random(seed)).fetch)
    for _ in range(polls):
        poller.poll(NORTH, insist=True)
    engine.dispose()


def die_after(statement: str) -> Callable[[Engine], None]:
    """Once the database has carried it out; "COMMIT" is the moment before."""

    def die(*arguments: Any) -> None:
        if statement == "COMMIT" or arguments[2].startswith(statement):
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(engine: Engine) -> None:
        event.listen(engine, "commit" if statement == "COMMIT" else "after_cursor_execute", die)

    return watch


def in_a_process(work: Callable[[], None], *, kill_after_s: float) -> int:
    """The signal that ended it, 0 where it ended by itself in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    give_up_at = time.monotonic() + kill_after_s
    while time.monotonic() < give_up_at:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return ended(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return ended(os.waitpid(child, 0)[1])


def ended(status: int) -> int:
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        sys.exit("a poll failed")
    return 0


def main(url: str, seed: int, *moments: str) -> None:
    if len(moments) == 1 and moments[0].isdigit():
        kill_at_random(url, seed, rounds=int(moments[0]))
    else:
        kill_after_each(url, seed, moments)
    if in_a_process(partial(poll_forever, url, seed, polls=2), kill_after_s=NEVER_KILLED_S):
        sys.exit("the last poll hung")


def kill_at_random(url: str, seed: int, *, rounds: int) -> None:
    chance = random.Random(seed)
    for number in range(rounds):
        in_a_process(partial(poll_forever, url, seed + number), kill_after_s=chance.uniform(0.02, LONGEST_LIFE_S))


def kill_after_each(url: str, seed: int, statements: Sequence[str]) -> None:
    for number, statement in enumerate(statements):
        work = partial(poll_forever, url, seed + number, watch=die_after(statement))
        if in_a_process(work, kill_after_s=NEVER_KILLED_S) != signal.SIGKILL:
            sys.exit(f"never came to {statement}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
