"""Engines as they were: factors of older versions, fitted beside the current ones, and how far off they are.

Flow: static batches of 2023 and 2024 -> with_old_engines (here) -> calibration.toml; old_engines -> report.py.

A version's deviations from the current engine, and its kernels on GPUs that no current engine was measured on, are
all that is fitted: what GPUs and models do is known by then. Each group is predicted by a fit without its batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.accuracy.coverage import band_of
from benchmarks.accuracy.errors import FloatArray, closed_form, relative
from benchmarks.accuracy.fitting import fitted_to
from benchmarks.accuracy.held_out import KEYS, prior_calibration
from benchmarks.accuracy.markdown import both, prose, table
from sutler.solver.calibration.factors import Calibration, Kernels
from sutler.solver.throughput.calibrate import Parameter
from sutler.solver.throughput.runs import ServingRun, with_room

# Standard deviations of the priors, as logarithms: what years change in an engine, and another maker's kernels.
VERSION_SPREAD: Final = {"compute": 0.3, "kv_bandwidth": 0.3, "overhead": 0.5}
FOREIGN_SPREAD: Final = {"compute": 0.7, "bandwidth": 0.5}


@dataclass(frozen=True, slots=True)
class OldEngines:
    """Batches of older versions, with |predicted / measured - 1| of their rates [num_runs]: by the current engine's
    factors, by their own, and by those that a GPU's or a model's batches were left out of."""

    runs: Sequence[ServingRun]
    current: FloatArray
    shipped: FloatArray
    left_out: dict[str, FloatArray]


def with_old_engines(start: Calibration, runs: Sequence[ServingRun]) -> Calibration:
    """`start` with the factors of the engines of `runs`, and the bands within which nine of ten batches are whose
    model was left out, or where there is one alone, whose number of GPUs."""
    found = _fitted(start, runs)
    off = _left_out(start, runs, "model")
    for name in sorted({run.engine for run in runs}):
        known = [i for i, run in enumerate(runs) if run.engine == name and not _is_foreign(run)]
        stated = replace(found.engines[name], band=band_of(off[known]))
        found = replace(found, engines={**found.engines, name: stated})
    return found


def old_engines(shipped: Calibration, runs: Sequence[ServingRun]) -> OldEngines | None:
    """None without any."""
    if not runs:
        return None
    now = [replace(run, engine=shipped.engine(run.engine).engine) for run in runs]
    left_out = {kind: np.abs(np.expm1(_left_out(shipped, runs, kind))) for kind in ("GPU", "model")}
    return OldEngines(runs, _off(now, shipped), _off(runs, shipped), left_out)


def _off(runs: Sequence[ServingRun], calibration: Calibration) -> FloatArray:
    return relative(closed_form(runs, calibration).req_per_s, [run.req_per_s for run in runs])


def _left_out(start: Calibration, runs: Sequence[ServingRun], kind: str) -> FloatArray:
    """Logarithms of predicted over measured, each run by a fit without its group."""
    several = {name for name in {run.engine for run in runs} if len(_values(runs, name, kind)) > 1}

    def key(run: ServingRun) -> str:
        return KEYS[kind](run) if run.engine in several else f"{run.engine}, {run.tensor_parallel} GPUs"

    out = np.empty(len(runs))
    for group in sorted({key(run) for run in runs}):
        mine = [i for i, run in enumerate(runs) if key(run) == group]
        found = _fitted(start, [run for run in runs if key(run) != group])
        rates = closed_form([runs[i] for i in mine], found).req_per_s
        out[mine] = np.log(rates / [runs[i].req_per_s for i in mine])
    return out


def _values(runs: Sequence[ServingRun], engine: str, kind: str) -> set[str]:
    return {KEYS[kind](run) for run in runs if run.engine == engine}


def _fitted(start: Calibration, runs: Sequence[ServingRun]) -> Calibration:
    dense = [run for run in with_room(runs) if run.spec.moe is None]
    names = sorted({run.engine for run in dense})
    assumed = prior_calibration().engines
    foreign = dict.fromkeys(
        start.kernels_of(run.engine, run.gpu, run.precision).key for run in dense if _is_foreign(run)
    )
    others = [one for one in start.kernels if one.key not in foreign]
    known = replace(
        start,
        engines={**start.engines, **{name: assumed[name] for name in names}},
        kernels=(*others, *(Kernels(*one) for one in foreign)),
    )
    places = range(len(others), len(others) + len(foreign))
    chosen = [Parameter(f"engine:{name}", factor, by) for name in names for factor, by in VERSION_SPREAD.items()]
    chosen += [Parameter(f"kernels:{at}", factor, by) for at in places for factor, by in FOREIGN_SPREAD.items()]
    return fitted_to(dense, [], known, chosen)


def _is_foreign(run: ServingRun) -> bool:
    """Whether neither a run of a current engine nor a layer's time is of such a GPU: AMD's."""
    return (run.gpu.architecture or "").lower().startswith("cdna")


def old_engines_section(found: OldEngines | None) -> str:
    """Of docs/accuracy.md."""
    if found is None:
        return ""
    rows = []
    for engine, slug in sorted({(run.engine, run.gpu.slug) for run in found.runs}):
        mine = np.array([run.engine == engine and run.gpu.slug == slug for run in found.runs])
        errors = (found.current, found.shipped, found.left_out["GPU"], found.left_out["model"])
        rows.append((engine, slug, int(mine.sum()), *(both(one[mine]) for one in errors)))
    header = ("engine", "GPU", "batches", "as current, %", "own factors, %", "GPU left out, %", "model left out, %")
    return (
        "## Engines as they were\n\n"
        + prose("""Static batches of 2023 and 2024: all requests start together, and the rate counts until the last
        token. *As current* is what the factors of today's versions say of them; *own factors* are those of the old
        version, which saw the batches. Where an engine has one GPU or model alone, a number of GPUs is left out.""")
        + table(header, rows, words=2)
    )
