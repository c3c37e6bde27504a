"""The worker is killed at every step of a replan: the next one goes on from there, and nothing is issued twice."""

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import psutil
import pytest

from tests.postgres import Server
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import kill, of, solvers, until_gone
from tests.service.faults.wire import Wire
from tests.service.running import PATIENCE_S, Running, until

NAMES: Final = ("chat", "search", "summaries")


@dataclass
class Site:
    """Deployments, and the only worker, at the end of a wire."""

    standing: Standing
    wire: Wire
    worker: Running

    @property
    def fork_server(self) -> psutil.Process:
        (found,) = self.worker.titled("fork_server")
        return found

    def suspend_fork_server(self) -> None:
        self.fork_server.suspend()

    def kill(self) -> None:
        kill(of(self.worker))

    def until_killed(self) -> None:
        assert self.worker.process.wait(PATIENCE_S) == -signal.SIGKILL

    def start_worker(self) -> None:
        self.worker = a_worker(self.standing, self.wire)


def a_worker(standing: Standing, wire: Wire) -> Running:
    return standing.scene.worker(SUTLER_DATABASE_URL=wire.url(standing.scene.database))


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Site]:
    with Wire(postgres) as wire, standing(postgres, *NAMES) as made:
        worker = a_worker(made, wire)
        until(lambda: set(made.revisions.values()) == {1})
        until(made.is_calm)
        yield Site(made, wire, worker)


@dataclass(frozen=True)
class Step:
    """`arm` comes before what leads to the step, `strike` while it goes on; one of them kills the worker."""

    arm: Callable[[Site], None] = lambda site: None
    strike: Callable[[Site], None] = lambda site: None


def before(statement: bytes) -> Step:
    return Step(lambda site: site.wire.cut_at(statement, site.kill))


def after(statement: bytes) -> Step:
    """Once its transaction is committed."""
    return Step(lambda site: site.wire.cut_after(statement, site.kill))


def let_its_solver_wait(site: Site) -> None:
    """It gets none: what it would be forked from stands still."""
    site.wire.pause_at(b"FROM observation", site.suspend_fork_server)


def kill_while_it_solves(site: Site) -> None:
    until(lambda: site.wire.is_whole)
    server = site.fork_server
    processes = [server, *solvers(site.worker)]
    site.kill()
    server.resume()
    until_gone(*processes)


def kill_while_it_tells(site: Site) -> None:
    """The receiver has got the event, and its answer is not noted."""
    site.standing.receivers[0].before_answering(site.kill)


STEPS: Final[Mapping[str, Mapping[str, Step]]] = {
    "queued": {
        "before the look is queued": before(b"procrastinate_defer_jobs"),
        "once it is queued": after(b"procrastinate_defer_jobs"),
        "once it is taken up": before(b"watch.memory"),
    },
    "solved": {
        "while the facts are read": before(b"FROM observation"),
        "while it is solved": Step(arm=let_its_solver_wait, strike=kill_while_it_solves),
        "when the solver has answered": before(b"FROM deployment .*FOR UPDATE"),
    },
    "issued": {
        "while the plan is stored": before(b"INSERT INTO plan"),
        "before the commit": before(b"INSERT INTO decision"),
        "after the commit": after(b"INSERT INTO decision"),
    },
    "told": {
        "before the job is finished": before(b"procrastinate_finish_job"),
        "before it is told": before(b"FROM delivery JOIN webhook"),
        "while it is told": Step(arm=kill_while_it_tells),
        "once that is noted": after(b"UPDATE delivery SET"),
    },
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_replan_whose_workers_are_killed_is_issued_once(site: Site, steps: Mapping[str, Step]) -> None:
    """One worker after the other, each at the next step of what the one before has left."""
    revisions = site.standing.revisions
    for number, step in enumerate(steps.values()):
        step.arm(site)
        if number == 0:
            site.standing.drift()
        else:
            site.start_worker()
        step.strike(site)
        site.until_killed()
    site.start_worker()
    site.standing.until_moved(revisions)
    site.standing.assert_whole()


def test_a_worker_that_is_told_to_end_while_it_looks_ends_and_another_one_looks(site: Site) -> None:
    """Its solvers hang; who ends a service does not wait for ever."""
    revisions = site.standing.revisions
    for process in solvers(site.worker):
        process.suspend()
    site.standing.drift()
    until(lambda: site.standing.scene.rows("SELECT id FROM procrastinate_jobs WHERE status = 'doing'"))
    site.worker.process.send_signal(signal.SIGTERM)
    assert site.worker.process.wait(PATIENCE_S) == 0
    site.start_worker()
    site.standing.until_moved(revisions)
    site.standing.assert_whole()
