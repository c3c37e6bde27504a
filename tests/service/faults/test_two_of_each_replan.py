"""Two schedulers and two workers, also while they are killed: a market that moves leads to one revision."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.postgres import Server
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import kill, of
from tests.service.faults.wire import Wire
from tests.service.running import PATIENCE_S, Running, until

NAMES: Final = ("chat", "search", "summaries", "mail")


@dataclass
class Site:
    """Deployments, two workers and two schedulers, the first of them at the end of a wire."""

    standing: Standing
    wire: Wire
    schedulers: list[Running]

    def start_scheduler(self) -> Running:
        url = self.wire.url(self.standing.scene.database)
        started = self.standing.scene.starts("--role", "scheduler", SUTLER_DATABASE_URL=url)
        self.schedulers.append(started)
        return started


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Site]:
    with Wire(postgres) as wire, standing(postgres, *NAMES, wary=True, SUTLER_POLL_INTERVAL_S="5") as made:
        for role in ("worker", "worker"):
            made.scene.starts("--role", role)
        found = Site(made, wire, [])
        found.start_scheduler()
        found.schedulers.append(made.scene.starts("--role", "scheduler"))
        until(lambda: set(made.revisions.values()) == {1})
        until(made.is_calm)
        yield found


def test_two_of_each_issue_one_revision_which_is_told_until_it_is_heard(site: Site) -> None:
    before = site.standing.revisions
    site.standing.move()
    site.standing.until_moved(before)
    site.standing.assert_whole()
    wary = site.standing.receivers[1]
    until(lambda: all(len(ids) > 1 for ids in list(wary.seen.values())))
    site.standing.assert_whole()


def test_a_market_whose_schedulers_are_killed_in_turn_leads_to_one_revision(site: Site) -> None:
    """One before its poll is stored, the next one after that: then nobody polls any more."""
    first, other = site.schedulers
    kill(of(other))
    before = site.standing.revisions
    site.wire.cut_at(b"INSERT INTO offer", lambda: kill(of(first)))
    site.standing.move()
    assert first.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert site.standing.revisions == before
    site.wire.cut_after(b"INSERT INTO poll", lambda: kill(of(site.schedulers[-1])))
    assert site.start_scheduler().process.wait(PATIENCE_S) == -signal.SIGKILL
    site.standing.until_moved(before)
    site.standing.assert_whole()
