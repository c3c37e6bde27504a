"""The same runs with the benchmark itself simulated, client by client: nothing about waves of prompts is fitted.

It is what `sutler estimate` answers with, by the roofline or by the operator database aiconfigurator-core.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Final

import numpy as np

from benchmarks.accuracy.coverage import band_of
from benchmarks.accuracy.errors import Answers, median
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration, Compared
from sutler.solver.estimate import one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.benchmark import Benchmarked, benchmarked
from sutler.solver.throughput.aiconfigurator import OperatorStages
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.latency import ClosedLoop
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.runs import ServingRun
from sutler.solver.throughput.stages import stage_kinds

LEAST_ROWS: Final = 15
NO_ANSWER = Benchmarked(float("nan"), float("nan"), float("nan"))


def simulated(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """Predicts by the roofline alone, whatever is installed."""
    return _asked(_by_roofline, runs, calibration)


def by_operators(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """Predicts by the operator database; NaN for the runs that it has no answer for."""
    return _asked(_by_operators, runs, calibration)


def compared(roofline: Answers, calibration: Calibration) -> tuple[Compared, ...]:
    """Puts the operator database beside what the roofline says, for each GPU type and kind of model with LEAST_ROWS
    runs of the reference engine that both answer; without the package as `calibration` has it."""
    if missing() is not None:
        return calibration.compared
    chosen = [i for i, run in enumerate(roofline.runs) if run.engine == REFERENCE_ENGINE]
    found = _asked(_by_operators, [roofline.runs[i] for i in chosen], calibration)
    operators = {i: float(rate) for i, rate in zip(chosen, found.req_per_s, strict=True) if np.isfinite(rate)}
    of_family = defaultdict[tuple[str, bool], list[int]](list)
    for i in operators:
        of_family[roofline.runs[i].gpu.slug, roofline.runs[i].spec.moe is not None].append(i)
    return tuple(
        _compared(family, places, roofline, operators)
        for family, places in sorted(of_family.items())
        if len(places) >= LEAST_ROWS
    )


def _compared(
    family: tuple[str, bool], places: Sequence[int], roofline: Answers, operators: Mapping[int, float]
) -> Compared:
    measured = np.array([roofline.runs[i].req_per_s for i in places])
    theirs = np.array([operators[i] for i in places]) / measured
    ours = roofline.predicted.req_per_s[list(places)] / measured
    return Compared(
        gpu=family[0],
        has_experts=family[1],
        runs=len(places),
        roofline_error_fraction=median(np.abs(ours - 1.0)),
        operators_error_fraction=median(np.abs(theirs - 1.0)),
        operators_band=band_of(np.log(theirs)),
    )


def _asked(
    source: Callable[[ServingRun, Calibration], Benchmarked], runs: Sequence[ServingRun], calibration: Calibration
) -> ClosedLoop:
    """In all cores."""
    with ProcessPoolExecutor() as pool:
        return _predicted(list(pool.map(source, runs, repeat(calibration), chunksize=8)))


def _predicted(found: Sequence[Benchmarked]) -> ClosedLoop:
    return ClosedLoop(
        np.array([one.req_per_s for one in found]),
        np.array([one.ttft_s for one in found]),
        np.array([one.tpot_s for one in found]),
    )


def _by_roofline(run: ServingRun, calibration: Calibration) -> Benchmarked:
    return _benchmarked(run, Roofline(calibration, run.engine, "roofline"))


def _by_operators(run: ServingRun, calibration: Calibration) -> Benchmarked:
    roofline = Roofline(calibration, run.engine, "aiconfigurator")
    stages, (kinds, _) = roofline.simulation_stages(_model(run)), stage_kinds(_layouts(run))
    is_answered = isinstance(stages, OperatorStages) and bool(stages.answers(kinds).all())
    return _benchmarked(run, roofline) if is_answered else NO_ANSWER


def _benchmarked(run: ServingRun, roofline: Roofline) -> Benchmarked:
    layouts = replace(_layouts(run), layers=np.array([[run.spec.layers]]))
    return benchmarked(roofline, _model(run), layouts, concurrency=max(1, round(run.concurrency)))


def _model(run: ServingRun) -> ServedModel:
    workload = Workload("w", run.input_tokens, run.output_tokens, 1.0)
    return ServedModel("w", run.spec, run.precision, run.kv_precision, (workload,))


def _layouts(run: ServingRun) -> Layouts:
    return one_layout(run.gpu, tensor_parallel=run.tensor_parallel, pipeline_parallel=1)
