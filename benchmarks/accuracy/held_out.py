"""Fits that leave groups out: for every GPU, model, precision and engine one that saw none of its runs.

Flow: runs -> leave_out (here) -> correlation.py, coverage.py -> bands.py -> calibrated.py.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.errors import Answers
from benchmarks.accuracy.fitting import fit
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration, calibration_from_toml
from sutler.solver.throughput.latency import ClosedLoop
from sutler.solver.throughput.runs import LayerRun, ServingRun, with_room

PRIOR: Final = Path(__file__).parent.with_name("roofline_prior.toml")

Key = Callable[[ServingRun], str]
Ask = Callable[[Sequence[ServingRun], Calibration], ClosedLoop]
KEYS: Final[dict[str, Key]] = {
    "GPU": lambda run: run.gpu.slug,
    "model": lambda run: run.spec.id,
    "precision": lambda run: run.precision,
    "engine": lambda run: run.engine,
}


@dataclass(frozen=True, slots=True)
class Fold:
    """One group that was left out. index: positions of its runs; the calibration saw none of them."""

    kind: str
    group: str
    index: NDArray[np.int64]
    calibration: Calibration
    fitted_runs: int
    fitted_layers: int

    @property
    def rests_on(self) -> str:
        return f"{self.fitted_runs} runs, {self.fitted_layers} layer profiles"

    def has(self, run: ServingRun) -> bool:
        """Whether the run is of the group."""
        return KEYS[self.kind](run) == self.group


def prior_calibration() -> Calibration:
    """What is assumed before any run."""
    return calibration_from_toml(PRIOR.read_text(encoding="utf-8"))


def leave_out(
    runs: Sequence[ServingRun],
    layers: Sequence[LayerRun],
    prior: Calibration,
    kinds: Sequence[str] = tuple(KEYS),
    *,
    beside: Sequence[ServingRun] = (),
) -> list[Fold]:
    """A fold per group of each kind; a GPU's layer profiles go with its runs. `beside`: runs that are fitted to as
    well, where they are not of the group."""
    asked = [
        (kind, group, runs, layers, prior, beside)
        for kind in kinds
        for group in sorted({KEYS[kind](run) for run in runs})
    ]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_fold, *zip(*asked, strict=True)))


def _fold(
    kind: str,
    group: str,
    runs: Sequence[ServingRun],
    layers: Sequence[LayerRun],
    prior: Calibration,
    beside: Sequence[ServingRun],
) -> Fold:
    key = KEYS[kind]
    kept = with_room([run for run in (*runs, *beside) if key(run) != group])
    kept_layers = [layer for layer in layers if kind != "GPU" or layer.gpu.slug != group]
    index = np.array([i for i, run in enumerate(runs) if key(run) == group], dtype=np.int64)
    calibration = fit(kept, kept_layers, prior, REFERENCE_ENGINE)
    return Fold(kind, group, index, calibration, len(kept), len(kept_layers))


def answers(runs: Sequence[ServingRun], folds: Sequence[Fold], kind: str, ask: Ask) -> Answers:
    """Every run predicted by the fit that left its group of that kind out."""
    out = ClosedLoop(*(np.full(len(runs), np.nan) for _ in range(3)))
    for fold in folds:
        if fold.kind == kind:
            found = ask([runs[i] for i in fold.index], fold.calibration)
            out.req_per_s[fold.index], out.ttft_s[fold.index] = found.req_per_s, found.ttft_s
            out.tpot_s[fold.index] = found.tpot_s
    return Answers(runs, out)
