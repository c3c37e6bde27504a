"""Fits the roofline's factors to all the runs at hand, from prior means that were only reasoned about.

Flow: runs -> fit (here) -> Calibration, which is written to calibration.toml; held_out.py fits without some of them.

The errors are those of the logarithms of requests/s, TTFT, TPOT and layer times. Rows of one (GPU, model, precision,
TP, engine) weigh as 15 together, or a long sweep of one configuration would outvote the rest.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.calibrate import (
    FACTOR_SPREAD,
    LARGEST_LOG_ERROR,
    ROWS_PER_GROUP,
    Parameter,
    fitted,
    kernel_parameters,
    parameters,
    with_kernels,
)
from sutler.solver.throughput.runs import LayerRun, ServingRun, predict, predict_layers, run_groups

# Chosen: rates count most, since plans rest on them; first tokens least, since they depend on how clients meet; and
# the many layer times no more than a hint.
WEIGHTS: Final = {"req_per_s": 3.0, "ttft_s": 0.5, "tpot_s": 1.5}
LAYER_WEIGHT: Final = 0.3
# What experts and latent attention add, of what all share.
EXPERTS: Final = tuple(
    Parameter("factors", name, FACTOR_SPREAD[name])
    for name in ("expert_compute", "expert_bandwidth", "expert_overhead", "latent_attention_overhead")
)
SOFT_L1_SCALE: Final = 0.3  # chosen: weighted errors beyond it count by their size, not its square


def fit(
    runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], prior: Calibration, reference_engine: str
) -> Calibration:
    """`prior` with its factors, and the classes, engines and kernels that have runs, moved to fit them.

    What experts add comes second, beside what is known of dense models then: runs of experts, whose kernels differ by
    engine, GPU and precision, would otherwise move what all models share.
    """
    dense = [run for run in runs if run.spec.moe is None]
    with_experts = [run for run in runs if run.spec.moe is not None]
    fitted_engines = prior.engines.keys() - {reference_engine}
    engines = dict.fromkeys(run.engine for run in dense if run.engine in fitted_engines)
    prior = with_kernels(prior, dense)
    chosen = (*parameters(prior, dense, layer_runs, engines), *kernel_parameters(prior, dense))
    found = fitted_to(dense, layer_runs, prior, chosen)
    known = with_kernels(found, with_experts)
    chosen = (*EXPERTS, *kernel_parameters(known, with_experts))
    return fitted_to(with_experts, [], known, chosen) if with_experts else found


def fitted_to(
    runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], prior: Calibration, chosen: Sequence[Parameter]
) -> Calibration:
    """`prior` with the chosen parameters moved."""
    groups, weights = run_groups(runs), _row_weights(runs)
    observed = {name: np.log(np.array([getattr(run, name) for run in runs])) for name in WEIGHTS}
    layer_observed = np.log(np.array([run.seconds for run in layer_runs]))

    def errors(calibration: Calibration) -> FloatArray:
        predicted = predict(groups, calibration)
        parts = [
            weight * weights * _log_error(getattr(predicted, name), observed[name])
            for name, weight in WEIGHTS.items()
        ]
        layers = LAYER_WEIGHT * (np.log(predict_layers(layer_runs, calibration)) - layer_observed)
        return np.concatenate([*parts, layers])

    return fitted(prior, chosen, errors, soft_l1_scale=SOFT_L1_SCALE, most_evaluations=40, tolerance=1e-5)


def _row_weights(runs: Sequence[ServingRun]) -> FloatArray:
    keys = [(run.gpu.slug, run.spec.id, run.precision, run.tensor_parallel, run.engine) for run in runs]
    counts = {key: keys.count(key) for key in dict.fromkeys(keys)}
    return np.sqrt([ROWS_PER_GROUP / counts[key] for key in keys])


def _log_error(predicted: FloatArray, observed: FloatArray) -> FloatArray:
    error = np.log(np.maximum(predicted, 1e-12)) - observed
    return np.nan_to_num(np.clip(error, -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR))  # 0 where nothing was measured
