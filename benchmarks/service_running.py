"""The service that is measured: the real `sutler serve`, its processes, and what they use."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from subprocess import run
from typing import Any, Final, TypedDict

import psutil

from sutler.service.db.embedded import FOLDER
from tests.service.builders import a_snapshot, an_offer
from tests.service.running import Running

ROOT: Final = Path(__file__).parent.parent
DATA: Final = "data"
ROLES: Final = ("api", "scheduler", "worker")
GPUS: Final = ("h100-sxm", "h200-sxm", "a100-sxm4-80gb", "l40s", "rtx-4090", "a40")
Processes = Mapping[str, list[psutil.Process]]


class Memory(TypedDict):
    """What the processes of one role take, in 10^6 bytes. `pss_mb` counts what several share only once."""

    role: str
    processes: int
    rss_mb: float
    pss_mb: float


def environment_of(folder: Path) -> dict[str, str]:
    """Defaults, but for the data's place and the cloud, which is a file; nothing of the caller's settings."""
    market = folder / "market.json"
    market.write_text(json.dumps(a_market()))
    others = {name: value for name, value in os.environ.items() if not name.startswith("SUTLER_")}
    path = os.pathsep.join(part for part in (str(ROOT), others.get("PYTHONPATH", "")) if part)
    return {
        **others,
        "PYTHONPATH": path,
        "SUTLER_DATA_DIR": str(folder / DATA),
        "SUTLER_PROVIDERS": "file",
        "SUTLER_FILE_PATH": str(market),
    }


def a_market() -> dict[str, Any]:
    """96 offers of machines with 1 to 8 GPUs of six types."""
    offers = (
        an_offer(
            provider="acme",
            offer_id=f"{gpu}-{size}-{tier}",
            gpu=gpu,
            gpus=size,
            price_usd_per_hour=round(size * (0.7 + 0.37 * number) * (1 + 0.013 * tier), 4),
            reliability_fraction=0.99,
        )
        for number, gpu in enumerate(GPUS)
        for size in (1, 2, 4, 8)
        for tier in range(4)
    )
    return {**a_snapshot(*offers), "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}


def made_key(environment: Mapping[str, str]) -> str:
    """A key that may plan, as an operator makes it."""
    command = [sys.executable, "-m", "sutler", "keys", "create", "bench", "--scope", "plan"]
    return run(command, env=dict(environment), capture_output=True, text=True, check=True).stdout.strip()


def processes_of(running: Running, folder: Path) -> Processes:
    """Sorts processes by role: the parent, its children, what they are forked from, the solver, and PostgreSQL."""
    return {
        "parent": [psutil.Process(running.process.pid)],
        **{role: [running.child(role)] for role in ROLES},
        "fork server": running.titled("fork_server"),
        "solver": running.titled("sutler solver"),
        "PostgreSQL": _database(folder),
    }


def _database(folder: Path) -> list[psutil.Process]:
    pid = int((folder / DATA / FOLDER / "postmaster.pid").read_text().split()[0])
    server = psutil.Process(pid)
    return [server, *server.children()]


def cpu_seconds(processes: Processes) -> dict[str, float]:
    """Processor time so far, by role; of children that ended too."""
    return {role: sum(map(_cpu_seconds, found)) for role, found in processes.items()}


def _cpu_seconds(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


def waited_seconds(process: psutil.Process) -> float:
    """How long its main thread has been kept waiting for a processor so far.

    https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat; 0 where the kernel does not say.
    """
    with suppress(OSError):
        return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def busy_seconds() -> float:
    """Processor time so far of everything on this machine, and what was taken from it."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def memory_of(processes: Processes) -> list[Memory]:
    """Measures memory by role, as it is now."""
    return [
        Memory(role=role, processes=len(found), rss_mb=_mb(found, "rss"), pss_mb=_mb(found, "pss"))
        for role, found in processes.items()
    ]


def _mb(processes: Iterable[psutil.Process], kind: str) -> float:
    return sum(int(getattr(process.memory_full_info(), kind)) for process in processes) / 1e6
