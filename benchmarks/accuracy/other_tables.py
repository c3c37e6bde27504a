"""What else was measured: times of single layers (Vidur)."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.accuracy.errors import FloatArray, relative
from benchmarks.accuracy.held_out import Fold
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.runs import LayerRun, predict_layers


@dataclass(frozen=True, slots=True)
class LayerErrors:
    """|predicted / measured - 1| of the layers of one GPU [num_layers]; left_out: by a fit that saw none of them,
    None where no fit left the GPU out."""

    gpu: str
    shipped: FloatArray
    left_out: FloatArray | None


def layer_errors(layers: Sequence[LayerRun], shipped: Calibration, folds: Sequence[Fold]) -> list[LayerErrors]:
    """Compares layer times by GPU."""
    without = {fold.group: fold.calibration for fold in folds if fold.kind == "GPU"}
    found = []
    for slug in sorted({layer.gpu.slug for layer in layers}):
        mine = [layer for layer in layers if layer.gpu.slug == slug]
        left_out = _layer_errors(mine, without[slug]) if slug in without else None
        found.append(LayerErrors(slug, _layer_errors(mine, shipped), left_out))
    return found


def _layer_errors(layers: Sequence[LayerRun], calibration: Calibration) -> FloatArray:
    return relative(predict_layers(layers, calibration), [layer.seconds for layer in layers])
