"""Moves the roofline's factors to where errors and moves together are least.

Flow: prior means and runs -> parameters, fitted (here) -> Calibration: refit.py moves the shipped one to a user's own
few runs; benchmarks/accuracy moves what was only reasoned about to all the runs at hand.

Least squares (scipy.optimize.least_squares, soft-L1) with a normal prior on the logarithm of every factor. GPU
classes and engines are deviations from the shared factors with priors centred on zero, so that a class with few rows
stays close to the others and one without rows equals them (partial pooling, Gelman & Hill 2007 ch. 12).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.factors import Calibration, EngineFactors, Factors, GpuClass, Kernels
from sutler.solver.throughput.runs import LayerRun, ServingRun

# Standard deviations of the priors, as logarithms: how far a factor may plausibly be from its prior mean.
FACTOR_SPREAD: Final = {
    "compute_fraction": 0.2,
    "fp8_fraction": 0.15,
    "fp4_fraction": 0.3,
    "attention_fraction": 0.4,
    "bandwidth_fraction": 0.1,
    "kv_bandwidth_fraction": 0.15,
    "ridge_exponent": 0.5,
    "allreduce_latency_s": 0.7,
    "allreduce_fraction": 0.4,
    "layer_overhead_s": 0.5,
    "step_overhead_s": 0.7,
    "sequence_overhead_s": 1.0,
    "kernel_overhead_fraction": 0.3,
    "pcie_allreduce_latency_s": 0.7,
    "pcie_allreduce_fraction": 0.5,
    "expert_compute": 0.4,
    "expert_bandwidth": 0.2,
    "expert_overhead": 0.4,
    "latent_attention_overhead": 0.4,
    "first_token_base_s": 0.5,
    "first_token_prefills": 0.5,
    "first_token_wave_fraction": 0.5,
}
CLASS_SPREAD: Final = {"compute": 0.1, "bandwidth": 0.07, "overhead": 0.2}
FIRST_TOKEN_SPREAD: Final = {"first_token_base": 0.5, "first_token_prefills": 0.5, "first_token_wave": 0.5}
ENGINE_SPREAD: Final = {"compute": 0.1, "kv_bandwidth": 0.15, "overhead": 0.2, **FIRST_TOKEN_SPREAD}
DENSE_KERNEL_SPREAD: Final = {"compute": 0.2, "bandwidth": 0.2}
EXPERT_KERNEL_SPREAD: Final = {"expert_compute": 0.5, "expert_bandwidth": 0.25, "expert_overhead": 0.4}
# Chosen: with more, a long sweep of one configuration outvotes the rest; with fewer, its detail is lost.
ROWS_PER_GROUP: Final = 15.0
# Errors beyond a factor e are queues or failed runs, not speeds.
LARGEST_LOG_ERROR: Final = 1.0
# A millionth is as good as nothing, and what documents of calibrations can say.
VANISHED: Final = -6 * np.log(10.0)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that is fitted, as the logarithm of its ratio to the prior mean.

    may_vanish: a time that comes on top of others and may be none at all: below its prior mean it is held by the
    ratio instead, so that nothing is 1 / spread away and not infinitely far.
    """

    place: (
        str  # "factors", or a GPU class ("class:hopper"), engine ("engine:vllm") or kernels ("kernels:3", by place)
    )
    name: str
    spread: float
    may_vanish: bool = False


def parameters(
    prior: Calibration, runs: Sequence[ServingRun], layer_runs: Sequence[LayerRun], engines: Iterable[str]
) -> tuple[Parameter, ...]:
    """The shared factors, and deviations of the GPU classes of the runs and of those engines."""
    gpus = [run.gpu for run in runs] + [run.gpu for run in layer_runs]
    classes = dict.fromkeys(prior.gpu_class(gpu).name for gpu in gpus)
    shared = [Parameter("factors", name, spread) for name, spread in FACTOR_SPREAD.items()]
    by_class = [Parameter(f"class:{one}", name, s) for one in classes for name, s in CLASS_SPREAD.items()]
    by_engine = [Parameter(f"engine:{one}", name, s) for one in engines for name, s in ENGINE_SPREAD.items()]
    return (*shared, *by_class, *by_engine)


def kernel_parameters(prior: Calibration, runs: Sequence[ServingRun]) -> tuple[Parameter, ...]:
    """Deviations of the kernels that runs used, which `prior` knows: of dense models those of dense products, of
    experts what they add."""
    used = {
        (prior.kernels_of(run.engine, run.gpu, run.precision).key, name): spread
        for run in runs
        for name, spread in (DENSE_KERNEL_SPREAD if run.spec.moe is None else EXPERT_KERNEL_SPREAD).items()
    }
    return tuple(
        Parameter(f"kernels:{place}", name, spread)
        for place, one in enumerate(prior.kernels)
        for (key, name), spread in used.items()
        if key == one.key
    )


def with_kernels(prior: Calibration, runs: Sequence[ServingRun]) -> Calibration:
    """`prior` with the kernels that the runs used."""
    used = (prior.kernels_of(run.engine, run.gpu, run.precision) for run in runs)
    return replace(prior, kernels=tuple(dict.fromkeys((*prior.kernels, *used))))


def fitted(
    prior: Calibration,
    chosen: Sequence[Parameter],
    errors: Callable[[Calibration], FloatArray],
    *,
    soft_l1_scale: float,
    most_evaluations: int,
    tolerance: float,
) -> Calibration:
    """`prior` with the chosen parameters moved to where errors and moves, in parts of their spreads, are least."""
    spread = np.array([parameter.spread for parameter in chosen])
    may_vanish = np.array([parameter.may_vanish for parameter in chosen])

    def strains(moves: FloatArray) -> FloatArray:
        return np.asarray(np.where(may_vanish & (moves < 0.0), np.expm1(moves), moves) / spread)

    solution = scipy.optimize.least_squares(
        lambda moves: np.concatenate([errors(moved(prior, chosen, moves)), strains(moves)]),
        np.zeros(len(chosen)),
        loss="soft_l1",
        f_scale=soft_l1_scale,
        max_nfev=most_evaluations,
        xtol=tolerance,
        ftol=tolerance,
    )
    return moved(prior, chosen, np.maximum(solution.x, VANISHED))


def moved(prior: Calibration, chosen: Sequence[Parameter], moves: FloatArray) -> Calibration:
    """`prior` with every parameter multiplied by exp(move)."""
    factors, classes, engines = prior.factors, {one.name: one for one in prior.gpu_classes}, dict(prior.engines)
    kernels = list(prior.kernels)
    for parameter, ratio in zip(chosen, np.exp(moves), strict=True):
        kind, _, name = parameter.place.partition(":")
        if kind == "factors":
            factors = _scaled(factors, parameter.name, ratio)
        elif kind == "class":
            classes[name] = _scaled(classes[name], parameter.name, ratio)
        elif kind == "kernels":
            kernels[int(name)] = _scaled(kernels[int(name)], parameter.name, ratio)
        else:
            engines[name] = _scaled(engines[name], parameter.name, ratio)
    return replace(
        prior, factors=factors, gpu_classes=tuple(classes.values()), engines=engines, kernels=tuple(kernels)
    )


def between(start: Calibration, end: Calibration, share: float) -> Calibration:
    """Returns what is `share` of the way from `start` to `end`, which have the same classes and engines: in
    logarithms, so that rates are about there, too; corrections that only `end` has count by that share."""
    corrections = end.corrections
    if corrections is not None and start.corrections is None:
        corrections = corrections.followed(share)
    return replace(
        end,
        factors=_between(start.factors, end.factors, share),
        gpu_classes=tuple(_between(a, b, share) for a, b in zip(start.gpu_classes, end.gpu_classes, strict=True)),
        engines={name: _between(start.engines[name], one, share) for name, one in end.engines.items()},
        kernels=tuple(_between(a, b, share) for a, b in zip(start.kernels, end.kernels, strict=True)),
        corrections=corrections,
    )


Scaled = TypeVar("Scaled", Factors, GpuClass, EngineFactors, Kernels)


def _scaled(entry: Scaled, name: str, ratio: float) -> Scaled:
    return replace(entry, **{name: getattr(entry, name) * float(ratio)})


def _between(start: Scaled, end: Scaled, share: float) -> Scaled:
    """The geometric mean of every multiplier, weighted."""
    names = [one.name for one in fields(end) if one.type is float]
    return replace(end, **{one: getattr(start, one) ** (1.0 - share) * getattr(end, one) ** share for one in names})
