"""A run's benchmark simulated as it went: what its first tokens should have taken.

Flow: ProfileRun -> protocol_of_run, first_token_error (here) -> solver/simulation/benchmark.py.
"""

from dataclasses import replace
from math import nan
from typing import Final

from sutler.service.profiles.runs import ProfileRun, serving_run
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.estimate import one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.benchmark import Protocol, benchmarked, protocol_of, with_all_layers
from sutler.solver.throughput.roofline import Roofline

MOST_EACH: Final = 30  # chosen: more requests of a client hardly change the means, and take long to simulate


def protocol_of_run(run: ProfileRun, names: Names = CATALOGUE) -> Protocol:
    """Returns how the benchmark went, as far as it is known; else as with the engine's published runs."""
    usual = protocol_of(shipped_calibration().engine(serving_run(run, names).engine))
    each = usual.requests_per_client
    if run.completed:
        each = min(max(round(run.completed / run.concurrency), 1), MOST_EACH)
    spread = run.length_spread_fraction
    return replace(
        usual,
        spread_fraction=usual.spread_fraction if spread is None else spread,
        requests_per_client=each,
        request_rate_rps=run.request_rate_rps,
    )


def first_token_error(run: ProfileRun, names: Names = CATALOGUE) -> float:
    """Simulated over measured TTFT, less 1, by the shipped factors; NaN where none was measured or nothing fits.
    Raises UnknownNameError, DocumentError."""
    if not run.ttft_s:
        return nan
    asked, key = serving_run(run, names), run.key
    workload = Workload("run", run.input_tokens, run.output_tokens, 1.0)
    model = ServedModel("run", asked.spec, key.precision, key.kv_precision, (workload,))
    layouts = one_layout(asked.gpu, tensor_parallel=run.tensor_parallel, pipeline_parallel=1)
    found = benchmarked(
        Roofline(engine_name=asked.engine),
        model,
        with_all_layers(layouts, asked.spec.layers),
        concurrency=max(round(run.concurrency), 1),
        protocol=protocol_of_run(run, names),
    )
    return found.ttft_s / run.ttft_s - 1.0
