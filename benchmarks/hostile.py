"""What hangs, and what many ask for: `python -m benchmarks.hostile` (`make hostile-bench`) writes results/hostile.md.

The real `sutler serve` with all roles, two keys and a PostgreSQL of its own, under what an attacker or bad luck
brings: bodies that are made to be slow to read, a database that is stopped, a row that somebody holds, roles that are
stopped, one key that asks for 200 plans, ten thousand deployments that are all due. While bodies are read,
`/healthz` is asked fifty times a second.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import psycopg
import requests
import yaml

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from benchmarks.scratch import tell
from sutler.service.db.queue_schema import SEARCH_PATH
from tests.postgres import Server, a_folder, a_server
from tests.service.builders import a_problem, a_slow_problem, a_snapshot, an_offer
from tests.service.running import PYTHON, Running, made_key, serving, settings, until

ROLES: Final = ("api", "scheduler", "worker")
ASYNC: Final = {"Prefer": "respond-async"}
CALLERS: Final = 40
PLANS: Final = 200
DEPLOYMENTS: Final = 10_000
MB: Final = 1e6


@dataclass
class Site:
    running: Running
    server: Server
    keys: Mapping[str, str]

    def ask(self, method: str, path: str, *, key: str = "one", **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        return requests.request(method, f"{self.running.url}{path}", headers=headers, timeout=120, **options)

    def sql(self, statement: str) -> Any:
        with psycopg.connect(self.server.url("hostile").replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(f"SET search_path TO {SEARCH_PATH}".encode())
            found = connection.execute(statement.encode())
            return found.fetchone()[0] if found.description else None  # type: ignore[index]

    def processes(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self.server.postmaster)
        return [postmaster, *postmaster.children(recursive=True)]


@dataclass
class Pulse:
    """Seconds that `/healthz` took, and the most memory that one process of the service had, in bytes."""

    answered_s: list[float] = field(default_factory=list)
    most_bytes: int = 0

    @property
    def p99_ms(self) -> float:
        return 1e3 * statistics.quantiles(self.answered_s, n=100)[98] if len(self.answered_s) > 1 else float("nan")


@contextmanager
def felt(site: Site) -> Iterator[Pulse]:
    """Feels the pulse of the service meanwhile."""
    pulse, stop = Pulse(), threading.Event()

    def feel() -> None:
        session = requests.Session()
        while not stop.wait(0.02):
            began = time.perf_counter()
            session.get(f"{site.running.url}/healthz", timeout=60)
            pulse.answered_s.append(time.perf_counter() - began)

    def weigh() -> None:
        while not stop.wait(0.05):
            for process in site.running.children():
                try:
                    pulse.most_bytes = max(pulse.most_bytes, process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    threads = [threading.Thread(target=target) for target in (feel, weigh)]
    for thread in threads:
        thread.start()
    try:
        yield pulse
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def bodies() -> Iterator[tuple[str, str, bytes]]:
    """Name, media type and body, of which only the last is a document."""
    laughs = "\n".join(["l0: &l0 [x]", *(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12))])
    keys = ",".join(f'"k{number}":1' for number in range(1_000_000))
    repeated = ",".join(f'"k{number}":1' for number in range(99_000))
    offers = [an_offer(offer_id=f"offer-{number}") for number in range(20_000)]
    market = yaml.dump(a_problem(market={"offers": a_snapshot(*offers)}), Dumper=yaml.CSafeDumper)
    yield "YAML, 1.9 million values", "application/yaml", b"[" + b"1," * 1_900_000 + b"1]"
    yield "YAML, aliases of aliases", "application/yaml", laughs.encode()
    yield "YAML, 100,000 levels", "application/yaml", b"- " * 100_000
    yield "JSON, a million unknown keys", "application/json", f"{{{keys}}}".encode()
    yield "JSON, the last key of 99,000 twice", "application/json", f'{{{repeated},"k98999":2}}'.encode()
    yield "JSON, two million empty models", "application/json", b'{"models":[' + b"{}," * 2_000_000 + b"{}]}"
    yield "YAML, 20,000 offers (accepted)", "application/yaml", market.encode()


def of_bodies(site: Site) -> Iterator[str]:
    yield "| body | MB | answer | s | /healthz p99, ms | largest process, MB |"
    yield "|---|---|---|---|---|---|"
    for name, kind, body in bodies():
        with felt(site) as pulse:
            began = time.perf_counter()
            answer = site.ask("POST", "/v1/plans", data=body, headers={"Content-Type": kind, **ASYNC})
            took_s = time.perf_counter() - began
        yield (
            f"| {name} | {len(body) / MB:.1f} | {answer.status_code} | {took_s:.2f} | {pulse.p99_ms:.0f} "
            f"| {pulse.most_bytes / MB:.0f} |"
        )


def at_once(ask: Callable[[int], requests.Response]) -> list[requests.Response]:
    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(ask, range(CALLERS)))


def of_a_stopped_database(site: Site) -> Iterator[str]:
    processes = site.processes()
    for process in processes:
        process.suspend()
    try:
        began = time.perf_counter()
        answers = at_once(lambda _: site.ask("GET", "/v1/deployments"))
        told_s = time.perf_counter() - began
    finally:
        for process in reversed(processes):
            process.resume()
    began = time.perf_counter()
    until(lambda: site.ask("GET", "/v1/deployments").ok)
    statuses = {answer.status_code for answer in answers}
    yield f"| PostgreSQL is stopped: {CALLERS} readers have their answer ({statuses}) | {told_s:.1f} s | 5 s |"
    yield f"| it goes on: the first answer with data | {time.perf_counter() - began:.1f} s | by itself |"


def of_a_held_row(site: Site) -> Iterator[str]:
    assert site.ask("POST", "/v1/deployments", json={"name": "held", "problem": a_problem()}).status_code == 201
    until(lambda: site.ask("GET", "/v1/deployments/held/plan").ok)
    url = site.server.url("hostile").replace("+psycopg", "")
    taken_s: list[float] = []
    with psycopg.connect(url) as holder, ThreadPoolExecutor(1) as beside:
        holder.execute("SELECT FROM deployment WHERE name = 'held' FOR UPDATE")
        began = time.perf_counter()
        changes = beside.submit(at_once, lambda _: site.ask("DELETE", "/v1/deployments/held"))
        while not changes.done():
            read_s = time.perf_counter()
            assert site.ask("GET", "/v1/deployments/held").ok
            taken_s.append(time.perf_counter() - read_s)
        statuses = {answer.status_code for answer in changes.result()}
        told_s = time.perf_counter() - began
    yield f"| a row is held: {CALLERS} changes of it have their answer ({statuses}) | {told_s:.1f} s | |"
    yield f"| meanwhile the slowest of {len(taken_s)} reads of it | {max(taken_s):.2f} s | 1 s |"


def of_stopped_roles(site: Site) -> Iterator[str]:
    for role in ROLES:
        before = site.running.child(role)
        before.suspend()
        began = time.perf_counter()

        def is_replaced(role: str = role, pid: int = before.pid) -> bool:
            return any(process.pid != pid for process in site.running.titled(f"--role {role}"))

        until(is_replaced)
        yield f"| the {role} is stopped: another one is there | {time.perf_counter() - began:.0f} s | 30 s |"
    until(lambda: _is_ready(site))


def _is_ready(site: Site) -> bool:
    try:
        return requests.get(f"{site.running.url}/readyz", timeout=5).ok
    except requests.RequestException:
        return False


def of_many_plans(site: Site) -> Iterator[str]:
    quick = {**a_problem(), "solver": {"time_limit_s": 5}}
    alone_s = statistics.median(_planned_s(site, quick) for _ in range(5))
    slow = a_slow_problem(time_limit_s=2.0)
    for _ in range(PLANS):
        assert site.ask("POST", "/v1/plans", json=slow, headers=ASYNC).status_code == 202
    beside_s = statistics.median(_planned_s(site, quick) for _ in range(5))
    yield f"| a quick plan of another key, alone | {alone_s:.2f} s | |"
    yield f"| the same behind {PLANS} plans of 2 s of one key | {beside_s:.2f} s | {2 * alone_s:.2f} s |"
    site.sql("UPDATE plan SET status = 'cancelled' WHERE status = 'queued'")


def _planned_s(site: Site, problem: dict[str, Any]) -> float:
    began = time.perf_counter()
    assert site.ask("POST", "/v1/plans", key="other", json=problem).status_code == 201
    return time.perf_counter() - began


def of_many_deployments(site: Site) -> Iterator[str]:
    """Copies of one, with its plan and what was looked at; the machines of one are then reported as lost."""
    site.sql(
        "INSERT INTO deployment (id, name, problem, policy, plan_id, revision) SELECT gen_random_uuid(), 'd' || n, "
        "problem, policy, plan_id, revision FROM deployment CROSS JOIN generate_series(1, "
        f"{DEPLOYMENTS}) n WHERE name = 'held'"
    )
    site.sql(
        "INSERT INTO watch (deployment_id, touches, looked, looked_at) SELECT id, 2, 1, now() - interval '1 hour' "
        "FROM deployment WHERE name ~ '^d[0-9]+$'"
    )
    until(lambda: site.sql("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'look_at_deployment'") > 100)
    assert site.ask("PUT", f"/v1/deployments/d{DEPLOYMENTS}/holdings", json={"holdings": []}).ok
    began = time.perf_counter()
    seen = (
        "SELECT w.looked >= w.urgent FROM watch w JOIN deployment d ON d.id = w.deployment_id "
        f"WHERE d.name = 'd{DEPLOYMENTS}'"
    )
    until(lambda: site.sql(seen))
    took_s = time.perf_counter() - began
    left = site.sql("SELECT count(*) FROM watch WHERE touches > looked")
    yield f"| {DEPLOYMENTS:,} deployments are due: a loss is looked at ({left:,} wait) | {took_s:.1f} s | 10 s |"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser_of("hostile", __doc__).parse_args(arguments)
    machine = describe_machine()
    lines = [
        "# What hangs, and what many ask for",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; sutler {machine['sutler']}, "
        f"{machine['date']}. How: benchmarks/hostile.py. Targets: refused bodies under 2 s, /healthz under 100 ms, "
        "no process over 500 MB.",
        "",
    ]
    with a_server() as server, a_folder() as folder:
        server.run("CREATE DATABASE hostile")
        own = {"SUTLER_DATABASE_URL": server.url("hostile"), "SUTLER_CHANGES_PER_MINUTE": "1000000"}
        environment = settings(folder, **own, SUTLER_LONGEST_SOLVE_S="300")
        keys = {name: made_key(environment, "admin") for name in ("one", "other")}
        with serving(folder, environment, "--require-key", sutler=PYTHON) as running:
            site = Site(running, server, keys)
            until(lambda: _is_ready(site))
            for part in (of_bodies, _table, of_a_held_row, of_a_stopped_database, of_many_plans, *LAST):
                for line in part(site):
                    tell(line)
                    lines.append(line)
    (options.out / "hostile.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


def _table(_site: Site) -> Iterator[str]:
    yield from ("", "| what | measured | target |", "|---|---|---|")


LAST: Final = (of_many_deployments, of_stopped_roles)


if __name__ == "__main__":
    sys.exit(main())
