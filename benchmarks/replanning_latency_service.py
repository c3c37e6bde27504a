"""The service whose replanning is timed: its processes, its store, and polls that land when the benchmark says so."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import requests
from sqlalchemy import Engine, text

from benchmarks.service_running import DATA, ROOT, Processes, busy_seconds, cpu_seconds, processes_of
from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.registry import PROVIDERS
from sutler.service.db import embedded
from sutler.service.db.engine import connected, transaction
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.market.repository import PollReport
from sutler.service.settings import market_settings, store_settings
from tests.service.running import PYTHON, Running, serving, until

Tell = Callable[[str], None]
PATIENCE_S: Final = 120.0
LONGEST_WAIT_S: Final = 60.0
_BUSY: Final = text("""
    SELECT (SELECT count(*) FROM watch w JOIN deployment d ON d.id = w.deployment_id
            WHERE d.plan_id IS NULL OR w.looked < w.touches OR w.market_version IS DISTINCT FROM
                (SELECT sum(changes) FROM provider))
         + (SELECT count(*) FROM queue.procrastinate_jobs
            WHERE status IN ('todo', 'doing') AND scheduled_at IS NULL)
""")


@dataclass(frozen=True, slots=True)
class Told:
    """A plan, and when a client had it (seconds since 1970)."""

    at_s: float
    plan: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Service:
    """All roles, and the benchmark's own way into their store."""

    running: Running
    folder: Path
    engine: Engine
    poller: Poller

    def land(self, provider: str) -> PollReport:
        """A poll now, committed when this returns. Raises RuntimeError where the cloud's answer was of no use."""
        report = self.poller.poll(PROVIDERS[provider], insist=True)
        if not report.poll.is_usable:
            raise RuntimeError(f"{provider}: {report.poll.outcome}: {report.poll.detail}")
        return report

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        with connected(self.engine) as connection:
            return [tuple(row) for row in connection.execute(text(statement), values)]

    def one(self, statement: str, **values: Any) -> Any:
        """The only value."""
        ((value,),) = self.rows(statement, **values)
        return value

    def change(self, statement: str) -> None:
        with transaction(self.engine) as connection:
            connection.execute(text(statement))

    @property
    def version(self) -> int:
        """The version of the market."""
        return int(self.one("SELECT coalesce(sum(changes), 0) FROM provider"))

    def is_at_rest(self) -> bool:
        """Every deployment has a plan and was looked at since anything happened, and nothing is under way."""
        with connected(self.engine) as connection:
            return int(connection.scalar(_BUSY) or 0) == 0

    def until_at_rest(self, *, patience_s: float = PATIENCE_S) -> None:
        """Raises AssertionError."""
        until(self.is_at_rest, patience_s=patience_s)

    def processes(self) -> Processes:
        return processes_of(self.running, self.folder)

    def plan(self, name: str) -> dict[str, Any]:
        """The one that holds."""
        answer = self.running.get(f"/v1/deployments/{name}/plan", params={"wait_s": LONGEST_WAIT_S}, timeout=90)
        return dict(checked(answer).json())

    def told(self, name: str, *, after: int) -> Told | None:
        """What a client hears that waits for the plan after this revision; may be called beside anything else."""
        url = f"{self.running.url}/v1/deployments/{name}/plan"
        answer = requests.get(url, params={"after": after, "wait_s": LONGEST_WAIT_S}, timeout=90)
        at_s = time.time()
        return None if answer.status_code == 304 else Told(at_s, dict(checked(answer).json()))


class Meter:
    """Processor time by role from now on; `others` is whatever else runs on the machine, the benchmark included."""

    def __init__(self, service: Service) -> None:
        self._service, self._began_at = service, time.monotonic()
        self._busy_s, self._used_s = busy_seconds(), cpu_seconds(service.processes())

    def seconds(self) -> dict[str, float]:
        now = cpu_seconds(self._service.processes())
        used = {role: now[role] - self._used_s[role] for role in now}
        return {**used, "others": busy_seconds() - self._busy_s - sum(used.values())}

    def others_cores(self) -> float:
        return self.seconds()["others"] / (time.monotonic() - self._began_at)


def checked(answer: requests.Response) -> requests.Response:
    """Raises RuntimeError for anything but success with content."""
    if answer.status_code not in (200, 201, 202):
        raise RuntimeError(f"{answer.request.method} {answer.url}: status {answer.status_code}: {answer.text[:400]}")
    return answer


@contextmanager
def started(folder: Path, environment: Mapping[str, str]) -> Iterator[Service]:
    """`sutler serve` with all roles on the store in `folder`, ready; stopped at the end, the store kept."""
    with serving(folder, environment, sutler=PYTHON) as running:
        until(lambda: running.get("/readyz").status_code == 200, patience_s=PATIENCE_S)
        settings, store = market_settings(environment), store_settings(environment)
        engine = open_store(store)
        try:
            yield Service(running, folder, engine, Poller(engine, settings.configs, settings.poll_interval_s))
        finally:
            engine.dispose()
            embedded.stop(store.data_dir)


def environment_on(folder: Path, **settings: str) -> dict[str, str]:
    """Defaults but for these settings and the data's place; nothing of the caller's settings."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SUTLER_")}
    path = os.pathsep.join(part for part in (str(ROOT), others.get("PYTHONPATH", "")) if part)
    return {**others, "PYTHONPATH": path, "SUTLER_DATA_DIR": str(folder / DATA), **settings}


def played_clouds(base_url: str) -> dict[str, str]:
    """Settings that make sutler ask the fake cloud in place of every one; keys are made up."""
    found = {"SUTLER_PROVIDERS": ",".join(CLOUDS)}
    for name in CLOUDS:
        found[f"SUTLER_{name}_BASE_URL".upper()] = base_url
        if PROVIDERS[name].needs_key:
            found |= {f"SUTLER_{name}_{secret}".upper(): "made-up" for secret in PROVIDERS[name].secrets}
    return found
