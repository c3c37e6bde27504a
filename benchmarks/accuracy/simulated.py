"""The same runs with the benchmark itself simulated, client by client: nothing about waves of prompts is fitted.

It is what `sutler estimate` answers with, by the roofline or by the operator database aiconfigurator-core.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sutler.solver.calibration.factors import Calibration
from sutler.solver.estimate import one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.benchmark import Benchmarked, benchmarked
from sutler.solver.throughput.aiconfigurator import OperatorStages
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.latency import ClosedLoop
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.runs import ServingRun
from sutler.solver.throughput.stages import stage_kinds

NO_ANSWER = Benchmarked(float("nan"), float("nan"), float("nan"))


def simulated(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """Predicts by the roofline alone, whatever is installed."""
    return _predicted([_by_roofline(run, calibration) for run in runs])


def by_operators(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """Predicts by the operator database; NaN for the runs that it has no answer for."""
    return _predicted([_by_operators(run, calibration) for run in runs])


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
