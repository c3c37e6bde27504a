"""What the numbers were measured on: CPU, cores, memory, versions and date; nothing that identifies the machine."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypedDict

from sutler.solver.version import VERSION

_PACKAGES: Final = ("numpy", "scipy", "ortools")
_CPU_INFO: Final = Path("/proc/cpuinfo")
_BYTES_PER_GB: Final = 1e9


class Machine(TypedDict):
    """`cores` are those this process may use; `memory_gb` is the machine's."""

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    packages: dict[str, str]
    sutler: str
    date: str


def describe_machine() -> Machine:
    """The machine that this process runs on (Linux)."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _BYTES_PER_GB, 1),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        packages={name: version(name) for name in _PACKAGES},
        sutler=VERSION,
        date=datetime.now(tz=UTC).date().isoformat(),
    )


def _cpu() -> str:
    lines = _CPU_INFO.read_text().splitlines() if _CPU_INFO.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()
