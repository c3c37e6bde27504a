"""How long reading the store takes: the very statements that the repository sends, explained; and whole commands."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, TypedDict

from sqlalchemy import Connection, Engine, event

from benchmarks.market_store import forget_files
from sutler.service.db import embedded

_ROOT: Final = Path(__file__).parent.parent
_REPEATS: Final = 5
_LONGEST_COMMAND_S: Final = 300.0
Server = Literal["running", "stopped", "cold"]
Ask = Callable[[Connection, datetime | None], object]


class Read(TypedDict):
    """One statement at several instants; milliseconds of its execution in the database.

    `first` is the first time it ran at that instant, `repeated` the median of the times after that. `nodes` are the
    indexes and scans of the plan, `blocks` those read and found in memory at the first time.
    """

    name: str
    instants: int
    rows: float
    first_ms: list[float]
    repeated_ms: list[float]
    planning_ms: float
    estimated_cost: float
    nodes: list[str]
    blocks_read: list[int]
    blocks_hit: list[int]


class Command(TypedDict):
    """A command as a process of its own; `seconds` from start to end of each time it ran, `cpu_seconds` its own.

    `server` is what it found: a server "running", or "stopped", so that the command starts it, or "cold": stopped,
    and none of the store's files in memory.
    """

    name: str
    server: Server
    seconds: list[float]
    cpu_seconds: list[float]
    output_mb: float


def read(engine: Engine, name: str, ask: Ask, instants: Sequence[datetime | None]) -> Read:
    """Explains what `ask` sends, at each instant."""
    with engine.connect() as connection:
        first, repeated = [], []
        for instant in instants:
            statement = _sent_by(partial(ask, connection, instant), engine, connection)
            runs = [_explained(connection, *statement) for _ in range(1 + _REPEATS)]
            first.append(runs[0])
            repeated.append(median(run["Execution Time"] for run in runs[1:]))
    plans = [run["Plan"] for run in first]
    return Read(
        name=name,
        instants=len(instants),
        rows=median(plan["Actual Rows"] for plan in plans),
        first_ms=[run["Execution Time"] for run in first],
        repeated_ms=repeated,
        planning_ms=median(run["Planning Time"] for run in first),
        estimated_cost=max(plan["Total Cost"] for plan in plans),
        nodes=sorted({node for plan in plans for node in _nodes(plan)}),
        blocks_read=[plan["Shared Read Blocks"] for plan in plans],
        blocks_hit=[plan["Shared Hit Blocks"] for plan in plans],
    )


class _KeptBackError(Exception):
    """Ends a question before it reaches the database: its first run is to be the explained one."""


def _sent_by(ask: Callable[[], object], engine: Engine, connection: Connection) -> tuple[str, Any]:
    """The statement that a question sends, and its parameters; it is kept back."""
    sent: list[tuple[str, Any]] = []

    def keep_back(_: object, cursor: object, statement: str, parameters: object, *__: object) -> None:
        sent.append((statement, parameters))
        raise _KeptBackError

    with _listening(engine, keep_back):
        try:
            ask()
        except _KeptBackError:
            connection.rollback()
    return sent[0]


@contextmanager
def _listening(engine: Engine, listener: Callable[..., None]) -> Iterator[None]:
    event.listen(engine, "before_cursor_execute", listener)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", listener)


def _explained(connection: Connection, statement: str, parameters: Any) -> dict[str, Any]:
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
    (row,) = connection.exec_driver_sql(explain, parameters)
    plan: dict[str, Any] = row[0][0]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[str]:
    relation = plan.get("Index Name") or plan.get("Relation Name")
    if relation and plan["Node Type"] != "Bitmap Heap Scan":
        yield f"{plan['Node Type']} {relation}"
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def run_command(name: str, arguments: Sequence[str], data_dir: Path, *, server: Server, times: int) -> Command:
    """Runs `sutler` on this store, whose server must run already for "running". Raises CalledProcessError."""
    seconds, cpu_seconds, output = [], [], b""
    for _ in range(times):
        if server != "running":
            embedded.stop(data_dir)
        if server == "cold":
            forget_files(data_dir)
        start, cpu_start = time.perf_counter(), _cpu_seconds_of_children()
        output = subprocess.run(
            [sys.executable, "-m", "sutler", *arguments],
            cwd=_ROOT,
            env={**os.environ, "SUTLER_DATA_DIR": str(data_dir), "SUTLER_DATABASE_URL": ""},
            check=True,
            stdout=subprocess.PIPE,
            timeout=_LONGEST_COMMAND_S,
        ).stdout
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(_cpu_seconds_of_children() - cpu_start)
    json.loads(output)
    return Command(name=name, server=server, seconds=seconds, cpu_seconds=cpu_seconds, output_mb=len(output) / 1e6)


def _cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
