"""A service with a current plan, and one run of the load generator against it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, TypedDict

from benchmarks.service_conditions import loaded
from benchmarks.service_latencies import Latencies, latencies_of
from benchmarks.service_load import Order, Outcome
from benchmarks.service_polls import Wish
from benchmarks.service_running import Processes, environment_of, processes_of
from sutler.service.documents.examples import CHAT_ON_THE_STORE
from tests.service.running import PYTHON, Running, serving, until

DEPLOYMENT: Final = "chat"
PLAN: Final = f"/v1/deployments/{DEPLOYMENT}/plan"
HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 16
RATE_RPS: Final = 500.0
LONG_POLLS: Final = 200
WAIT_S: Final = 60.0


class Round(TypedDict):
    """One run of the load generator. `late` is its own lateness, in the open loop.

    `cpu`: cores used, by role; `others` is whatever else runs on the machine, who holds long polls included.
    `api_cpu_s` is what the API's process took for one request. `api_waited_fraction`: the share of the time in which
    it could have run, but others had the processors.
    """

    asked: int
    rate_rps: float
    latencies: Latencies
    late: Latencies | None
    errors: dict[str, int]
    cpu: dict[str, float]
    api_cpu_s: float
    api_waited_fraction: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A service with a current plan."""

    running: Running
    folder: Path
    etag: str
    body_bytes: int

    def processes(self) -> Processes:
        """Lists them as they are now: a solver that is cancelled is replaced."""
        return processes_of(self.running, self.folder)

    def order(self, loop: Literal["open", "closed"], seconds: float) -> Order:
        """Makes an order to ask for the current plan."""
        return Order(
            host=HOST,
            port=port_of(self.running),
            target=PLAN,
            key=None,
            etag=self.etag,
            body_bytes=self.body_bytes,
            loop=loop,
            connections=CONNECTIONS,
            rate_rps=RATE_RPS,
            seconds=seconds,
        )

    def wish(self) -> Wish:
        """Makes an order to wait for the next plan."""
        return Wish(
            host=HOST,
            port=port_of(self.running),
            target=PLAN,
            clients=LONG_POLLS,
            revision=self.running.get(PLAN).json()["revision"],
            wait_s=WAIT_S,
        )

    def round(self, loop: Literal["open", "closed"], seconds: float) -> tuple[Outcome, Round]:
        """The service asked for `seconds`."""
        return round_of(self.order(loop, seconds), self.processes())


@contextmanager
def started(folder: Path) -> Iterator[Measured]:
    """All roles, defaults, a deployment on the stored market, and its first plan."""
    folder.mkdir()
    with serving(folder, environment_of(folder), sutler=PYTHON) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        made = running.post("/v1/deployments", {"name": DEPLOYMENT, "problem": CHAT_ON_THE_STORE})
        assert made.status_code == 201, made.text
        plan = running.get(PLAN, params={"wait_s": 30})
        assert plan.status_code == 200, plan.text
        assert plan.json()["status"] == "optimal", plan.text
        yield Measured(running, folder, plan.headers["ETag"], len(plan.content))


def round_of(order: Order, processes: Processes) -> tuple[Outcome, Round]:
    """The order carried out, in full and in brief."""
    outcome, used = loaded(order, processes)
    return outcome, Round(
        asked=outcome["asked"],
        rate_rps=len(outcome["latencies_s"]) / outcome["seconds"],
        latencies=latencies_of(outcome["latencies_s"]),
        late=latencies_of(outcome["late_s"]) if outcome["late_s"] else None,
        errors=outcome["errors"],
        cpu={role: seconds / outcome["seconds"] for role, seconds in used.cpu_seconds.items()},
        api_cpu_s=used.cpu_seconds["api"] / outcome["asked"],
        api_waited_fraction=used.api_waited_s / outcome["seconds"],
    )


def port_of(running: Running) -> int:
    """Finds the port where the service listens."""
    return int(running.url.rpartition(":")[2])


def median_of(rounds: Sequence[Round], value: Callable[[Round], Any]) -> float:
    """Over the rounds."""
    return float(median(value(found) for found in rounds))


def errors_of(rounds: Sequence[Round]) -> dict[str, int]:
    """Counts errors by kind, over all rounds."""
    kinds = {kind for found in rounds for kind in found["errors"]}
    return {kind: sum(found["errors"].get(kind, 0) for found in rounds) for kind in sorted(kinds)}
