"""Measured loads as the benchmark runs that profiles import, and as the table that `sutler profiles import` reads."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from sutler.service.profiles.runs import BenchmarkRun
from sutler.service.trial.load import Load, Measured
from sutler.service.trial.targets import Target
from sutler.solver.problem import Workload


@dataclass(frozen=True, slots=True)
class TargetRun:
    """One load on one replica, and what came of it."""

    target: Target
    workload: Workload
    load: Load
    measured: Measured
    engine_version: str

    @property
    def place(self) -> str:
        """Which of the runs it is, in words."""
        return f"{self.target.replica.id}, {self.workload.name}, {self.load.concurrency} at once"


def benchmark_run(run: TargetRun) -> BenchmarkRun:
    """The run with everything that the plan says of its replica."""
    target, load, found = run.target, run.load, run.measured
    stage, spec = target.replica.stages[0], target.model.spec
    engine = target.replica.engine if target.replica.engine != "any-layout" else target.model.engine
    return BenchmarkRun(
        place=run.place,
        model=None if spec is None else spec.id,
        gpu=stage.gpu,
        precision=target.model.precision,
        kv_precision=target.model.kv_precision,
        engine=engine,
        engine_version=run.engine_version,
        tensor_parallel=stage.tensor_parallel,
        pipeline_parallel=len(target.replica.stages),
        input_tokens=float(load.input_tokens),
        output_tokens=float(load.output_tokens),
        concurrency=float(load.concurrency),
        req_per_s=found.req_per_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=found.e2e_s,
        completed=found.completed,
        failed=0,
        duration_s=found.duration_s,
        measured_at=found.started_at,
        length_spread_fraction=0.0,
    )


def table_of_runs(runs: Iterable[BenchmarkRun]) -> bytes:
    """A CSV file, one run a row."""
    names = [name for name in BenchmarkRun.__slots__ if name != "place"]
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerow({name: _cell(value) for name, value in asdict(run).items()})
    return text.getvalue().encode()


def _cell(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
