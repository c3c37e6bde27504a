"""What else was measured: times of single layers (Vidur), and static batches on an engine of 2023 (Splitwise)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.accuracy.calibrated import drawn
from benchmarks.accuracy.errors import FloatArray, relative
from benchmarks.accuracy.held_out import Fold
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.refit import errors, refit
from sutler.solver.throughput.runs import LayerRun, ServingRun, predict_layers

REFIT_RUNS: Final = 5


@dataclass(frozen=True, slots=True)
class LayerErrors:
    """|predicted / measured - 1| of the layers of one GPU [num_layers]; left_out: by a fit that saw none of them,
    None where no fit left the GPU out."""

    gpu: str
    shipped: FloatArray
    left_out: FloatArray | None


@dataclass(frozen=True, slots=True)
class StaticErrors:
    """|predicted / measured - 1| of requests/s by the shipped factors [num_runs], and after REFIT_RUNS of the runs on
    the others, all seeds one after the other; runs: in words."""

    runs: str
    before: FloatArray
    after: FloatArray


def layer_errors(layers: Sequence[LayerRun], shipped: Calibration, folds: Sequence[Fold]) -> list[LayerErrors]:
    """Compares layer times by GPU."""
    without = {fold.group: fold.calibration for fold in folds if fold.kind == "GPU"}
    found = []
    for slug in sorted({layer.gpu.slug for layer in layers}):
        mine = [layer for layer in layers if layer.gpu.slug == slug]
        left_out = _layer_errors(mine, without[slug]) if slug in without else None
        found.append(LayerErrors(slug, _layer_errors(mine, shipped), left_out))
    return found


def static_errors(runs: Sequence[ServingRun], shipped: Calibration, *, seeds: int) -> StaticErrors | None:
    """Refits on static runs; returns None without more runs than a refit takes."""
    if len(runs) <= REFIT_RUNS:
        return None
    after = []
    for seed in range(seeds):
        picked, rest = drawn(runs, REFIT_RUNS, seed)
        after.append(_sizes(rest, refit(picked, [], shipped).calibration))
    first = runs[0]
    words = f"{first.spec.id} {first.precision} on {first.gpu.slug}"
    return StaticErrors(words, _sizes(runs, shipped), np.concatenate(after))


def _layer_errors(layers: Sequence[LayerRun], calibration: Calibration) -> FloatArray:
    return relative(predict_layers(layers, calibration), [layer.seconds for layer in layers])


def _sizes(runs: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    return np.asarray(np.abs(np.exp(errors(runs, calibration).req_per_s) - 1.0))
