"""Many problems at once over several workers: `python -m benchmarks.scale` (`make scale-bench`).

One PostgreSQL, the API and the scheduler, and 1 to 8 workers of one solver each, as on so many machines: how many
plans a second they make of a full queue, and how soon all deployments have been looked at again after a poll. What
each part takes of a processor says how far more machines carry it. Writes results/scale.md.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from sqlalchemy import text

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from benchmarks.replanning_latency_deployments import set_up
from benchmarks.replanning_latency_fleet import POLLED, Clock
from benchmarks.replanning_latency_service import Service, checked, environment_on, played_clouds
from benchmarks.scratch import scratch_folder, tell
from benchmarks.service_running import cpu_seconds
from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.service.db import embedded
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.settings import market_settings, store_settings
from tests.postgres import Server
from tests.service.builders import a_problem
from tests.service.running import PYTHON, Running, serving, until

PLANS: Final = 400
MANY_WORKERS: Final = (1, 2, 4, 8)
PLANNED: Final = 20  # deployments with a plan of their own; all others are copies of them
FLEETS: Final = ((200, 1), (200, 2), (1_000, 1), (1_000, 2), (10_000, 2))  # deployments, workers
MOVES_S: Final = 3600.0  # of the market, before the poll
PATIENCE_S: Final = 3600.0
POLL_INTERVAL_S: Final = 86_400  # the benchmark polls
MACHINES: Final = 300

ROLES: Final = ("API and scheduler", "workers", "solvers", "PostgreSQL")

_FINISHED: Final = """
    SELECT count(*) FILTER (WHERE finished_at IS NOT NULL),
        EXTRACT(EPOCH FROM max(finished_at) - min(created_at))::float
    FROM plan WHERE id = ANY(:plans)
"""
_COPIES: Final = """
    CREATE TEMP TABLE copies AS
    SELECT d.id AS of_id, d.plan_id AS of_plan, gen_random_uuid() AS id, gen_random_uuid() AS plan, d.name || '~' || n
        AS name
    FROM public.deployment d, generate_series(CAST(:first AS int), CAST(:last AS int)) n WHERE d.name NOT LIKE '%~%'
"""
_COPIED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "deployment": ("t.id = c.of_id", {"id": "c.id", "plan_id": "c.plan", "name": "c.name"}),
    "plan": ("t.id = c.of_plan", {"id": "c.plan", "deployment_id": "c.id", "deployment_name": "c.name"}),
    "watch": ("t.deployment_id = c.of_id", {"deployment_id": "c.id"}),
    "observation": ("t.deployment_id = c.of_id", {"deployment_id": "c.id"}),
}
_COLUMNS: Final = """
    SELECT column_name FROM information_schema.columns
    WHERE table_schema = 'public' AND table_name = :name AND is_generated = 'NEVER' AND is_identity = 'NO'
"""


@dataclass(frozen=True, slots=True)
class Site:
    """The service, its workers, and its database's first process."""

    service: Service
    workers: Sequence[Running]
    postmaster: psutil.Process

    @contextmanager
    def metered(self) -> Iterator[dict[str, float]]:
        """Processor seconds by role, once it ends."""
        found: dict[str, float] = {}
        before = self._cpu_s()
        yield found
        found |= {role: seconds - before[role] for role, seconds in self._cpu_s().items()}

    def _cpu_s(self) -> dict[str, float]:
        own = _family(self.service.running.process.pid)
        working = [one for worker in self.workers for one in _family(worker.process.pid)]
        solvers = [one for one in working if "sutler solver" in " ".join(one.cmdline())]
        others = [one for one in working if one not in solvers]
        return cpu_seconds(dict(zip(ROLES, (own, others, solvers, _family(self.postmaster.pid)), strict=True)))


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of a table, and the processor milliseconds of each plan or look by role."""

    cells: Sequence[str]
    each_ms: Mapping[str, float]

    @property
    def row(self) -> str:
        return "| " + " | ".join([*self.cells, *(f"{each:.1f}" for each in self.each_ms.values())]) + " |"

    def limits(self, what: str) -> str:
        """What one core of each part carries, whatever the others do."""
        working = self.each_ms["workers"] + self.each_ms["solvers"]
        return (
            f"By the first row a core of a worker and its solver makes {1e3 / working:.0f} {what}/s, and a core of "
            f"PostgreSQL carries {1e3 / self.each_ms['PostgreSQL']:.0f}."
        )


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


@contextmanager
def working(folder: Path, environment: Mapping[str, str], workers: int) -> Iterator[Site]:
    """The service with so many workers of one solver each."""
    settings, store = market_settings(environment), store_settings(environment)
    with ExitStack() as stack:
        running = stack.enter_context(serving(folder, environment, "--role", "api", sutler=PYTHON))
        stack.enter_context(serving(folder, environment, "--role", "scheduler", waits=False, sutler=PYTHON))
        each = [
            stack.enter_context(serving(folder, environment, "--role", "worker", waits=False, sutler=PYTHON))
            for _ in range(workers)
        ]
        engine = open_store(store)
        stack.callback(engine.dispose)
        until(lambda: running.get("/readyz").status_code == 200)
        until(lambda: all(one.titled("sutler solver") for one in each))
        poller = Poller(engine, settings.configs, settings.poll_interval_s)
        yield Site(Service(running, folder, engine, poller), each, psutil.Process(Server(folder / "data").postmaster))


def made_plans(site: Site) -> Measured:
    """So many small plans at once: the queue, the store and the copies between processes are what they take."""
    running = site.service.running
    problems = [{**a_problem(), "budget_usd_per_hour": 20 + number / PLANS} for number in range(PLANS)]
    with site.metered() as cpu_s:
        asked = [
            checked(running.post("/v1/plans", problem, headers={"Prefer": "respond-async"})).headers["Location"]
            for problem in problems
        ]
        plans = [url.rpartition("/")[2] for url in asked]
        until(lambda: site.service.rows(_FINISHED, plans=plans)[0][0] == PLANS, patience_s=PATIENCE_S)
    ((_, seconds),) = site.service.rows(_FINISHED, plans=plans)
    return Measured((str(len(site.workers)), f"{seconds:.1f}", f"{PLANS / seconds:.1f}"), _each_ms(cpu_s, PLANS))


def looked_at(site: Site, clock: Clock, deployments: int) -> Measured:
    """A poll after which all are due, and when the last has been looked at."""
    service = site.service
    service.until_at_rest(patience_s=PATIENCE_S)
    clock.now_s += MOVES_S
    with site.metered() as cpu_s:
        report = service.land(POLLED)
        seen = "SELECT count(*) FROM watch WHERE market_version >= :version"
        version = service.version
        until(lambda: service.one(seen, version=version) >= deployments, patience_s=PATIENCE_S)
        seconds = time.time() - report.at.timestamp()
    cells = (f"{deployments:,}", str(len(site.workers)), f"{seconds:.1f}", f"{deployments / seconds:.0f}")
    return Measured(cells, _each_ms(cpu_s, deployments))


def _each_ms(cpu_s: Mapping[str, float], count: int) -> dict[str, float]:
    return {role: 1e3 * seconds / count for role, seconds in cpu_s.items()}


def copy_deployments(service: Service, wanted: int) -> None:
    """Deployments with the plans, holdings and traffic of those there are, until so many are there."""
    there = int(service.one("SELECT count(*) FROM deployment"))
    if wanted <= there:
        return
    with service.engine.begin() as connection:
        connection.execute(text(_COPIES), {"first": there // PLANNED, "last": wanted // PLANNED - 1})
        for table, (joined, changed) in _COPIED.items():
            columns = [name for (name,) in service.rows(_COLUMNS, name=table)]
            taken = ", ".join(changed.get(name, f"t.{name}") for name in columns)
            new = f"SELECT {taken} FROM copies c JOIN public.{table} t ON {joined}"
            connection.execute(text(f"INSERT INTO public.{table} ({', '.join(columns)}) {new}"))
        connection.execute(text("DROP TABLE copies"))
        connection.execute(text("ANALYZE"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the results; the exit status."""
    parser = parser_of("scale", __doc__)
    parser.add_argument("--quick", action="store_true", help="two workers and 200 deployments at most, for a look")
    options = parser.parse_args(arguments)
    many_workers, fleets = (MANY_WORKERS[:2], FLEETS[:2]) if options.quick else (MANY_WORKERS, FLEETS)
    lines: list[str] = []

    def say(*some: str) -> None:
        for line in some:
            tell(line)
            lines.append(line)

    machine, clock = describe_machine(), Clock()
    say(
        "# Many problems at once over several workers",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; sutler {machine['sutler']}, "
        f"{machine['date']}. How: benchmarks/scale.py.",
        "",
    )
    with scratch_folder() as folder, FakeCloud(Market(seed=1, machines=MACHINES), clock=clock) as cloud:
        folder.chmod(0o755)
        server = Server(folder / "data")
        server.run("CREATE DATABASE scale")
        environment = environment_on(
            folder,
            **played_clouds(cloud.base_url),
            SUTLER_DATABASE_URL=server.url("scale"),
            SUTLER_POLL_INTERVAL_S=str(POLL_INTERVAL_S),
            SUTLER_SOLVES_AT_ONCE="1",
            SUTLER_CHANGES_PER_MINUTE="1000000",
        )
        try:
            _measure(folder, environment, clock, many_workers, fleets, say)
        finally:
            embedded.stop(folder / "data")
    (options.out / ("scale-quick.md" if options.quick else "scale.md")).write_text("\n".join([*lines, ""]))
    return 0


def _measure(
    folder: Path,
    environment: Mapping[str, str],
    clock: Clock,
    many_workers: Sequence[int],
    fleets: Sequence[tuple[int, int]],
    say: Callable[..., None],
) -> None:
    of_roles = " | ".join(f"{role}, CPU ms each" for role in ROLES)
    say(f"{PLANS} small plans, asked for at once:", "", f"| workers | s | plans/s | {of_roles} |", "|---" * 7 + "|")
    found = []
    for workers in many_workers:
        with working(folder, environment, workers) as site:
            found.append(made_plans(site))
            say(found[-1].row)
    say("", found[0].limits("plans"))
    with working(folder, environment, 2) as site:
        for name in CLOUDS:
            site.service.land(name)
        set_up(site.service, PLANNED, tell)
        for number in range(PLANNED):
            checked(site.service.running.post(f"/v1/deployments/chat-{number}/holdings/ack"))
        looked_at(site, clock, PLANNED)  # the first time much is looked up that is known from then on
        site.service.until_at_rest(patience_s=PATIENCE_S)
        offers = site.service.one("SELECT count(*) FROM offer WHERE upper_inf(valid)")
    say(
        "",
        f"Deployments on a market of {offers} offers, all looked at again after a poll (copies of {PLANNED}, which "
        "hold what they plan; the first look at a copy may ask a solver):",
        "",
        f"| deployments | workers | s | looks/s | {of_roles} |",
        "|---" * 8 + "|",
    )
    found = []
    for deployments, workers in fleets:
        with working(folder, environment, workers) as site:
            copy_deployments(site.service, deployments)
            there = int(site.service.one("SELECT count(*) FROM deployment"))
            found.append(looked_at(site, clock, there))
            say(found[-1].row)
    say("", found[0].limits("looks"))


if __name__ == "__main__":
    sys.exit(main())
