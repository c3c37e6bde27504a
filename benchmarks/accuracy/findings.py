"""Everything that is measured for one report, gathered in the order in which its parts need each other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.accuracy.bands import with_uncertainty
from benchmarks.accuracy.calibrated import Recalibrated, after_runs, starts
from benchmarks.accuracy.coverage import Covered, Score, conformal_band, coverage, covered, scores
from benchmarks.accuracy.errors import Answers, closed_form
from benchmarks.accuracy.fitting import fit
from benchmarks.accuracy.held_out import KEYS, Fold, answers, leave_out, prior_calibration
from benchmarks.accuracy.old_engines import OldEngines, old_engines, with_old_engines
from benchmarks.accuracy.other_tables import LayerErrors, layer_errors
from benchmarks.accuracy.regimes import KINDS, Wide, wide
from benchmarks.accuracy.simulated import by_operators, compared, simulated
from benchmarks.accuracy.table6 import Table6Estimate, table6_estimates
from benchmarks.calibration_file import calibration_toml
from benchmarks.measurements import layer_runs, serving_runs, static_batches, static_runs, table6_rows
from benchmarks.scratch import tell
from sutler.solver.calibration.factors import (
    REFERENCE_ENGINE,
    Calibration,
    calibration_from_toml,
    shipped_calibration,
)
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.runs import LayerRun, ServingRun, with_room

ROOFLINE: Final = "calibrated roofline"
SIMULATED: Final = "benchmark simulated"
OPERATORS: Final = "aiconfigurator"
RUN_COUNTS: Final = (5, 3)

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Findings:
    """sources: what each says with the shipped factors; no_operators: why OPERATORS is not among them. left_out and
    simulated_left_out: by kind of group. band: over all folds, before rounding. engine_coverage: under the
    band of engines without factors. after: by number of runs."""

    runs: Sequence[ServingRun]
    layers: Sequence[LayerRun]
    shipped: Calibration
    folds: Sequence[Fold]
    sources: Mapping[str, Answers]
    no_operators: str | None
    left_out: Mapping[str, Answers]
    simulated_left_out: Mapping[str, Answers]
    band: float
    coverage: Sequence[Covered]
    reference_coverage: Sequence[Covered]
    engine_coverage: Sequence[Covered]
    after: Mapping[int, Sequence[Recalibrated]]
    layer_errors: Sequence[LayerErrors]
    table6: Sequence[Table6Estimate]
    wide: Wide | None
    old_engines: OldEngines | None


def gather(path: Path, runs: Sequence[ServingRun], *, refits: bool, seeds: int) -> Findings:
    """`refits`: judge factors fitted on every run instead of the shipped ones. Takes minutes; says on stderr where
    it is."""
    layers = _beside(path, "layer_gemm_vidur.csv", layer_runs)
    beside = _beside(path, "serving_wide.csv", serving_runs)
    tell("fits that leave a GPU, model, precision or engine out")
    folds = leave_out(runs, layers, prior_calibration(), beside=beside)
    found, every = scores(runs, folds), with_room([*runs, *beside])
    wide_folds = leave_out(every, layers, prior_calibration(), KINDS) if beside else []
    earlier = _beside(path, "static_splitwise.csv", static_runs)
    batches = [*_beside(path, "serving_wide.csv", static_batches), *earlier]
    shipped = shipped_calibration()
    if refits:
        shipped = _fitted(path, every, wide_folds, layers, batches, reference=found)
    tell("the benchmark simulated, by what every fit says")
    simulated_left_out = {kind: answers(runs, folds, kind, simulated) for kind in KEYS}
    sources = _sources(runs, shipped)
    tell("calibration on a few runs of what was left out")
    started = starts(folds, found, found)
    after = {count: after_runs(runs, folds, started, count=count, seeds=seeds) for count in RUN_COUNTS}
    tell("layer times, Table 6, wherever people serve")
    engine_folds = [fold for fold in folds if fold.kind == "engine"]
    return Findings(
        runs=runs,
        layers=layers,
        shipped=shipped,
        folds=folds,
        sources=sources,
        no_operators=missing(),
        left_out={kind: answers(runs, folds, kind, closed_form) for kind in KEYS},
        simulated_left_out=simulated_left_out,
        band=conformal_band(found),
        coverage=coverage(found, folds),
        reference_coverage=coverage(found, folds, engine=REFERENCE_ENGINE),
        engine_coverage=[covered(found, fold, shipped.priors.engine_band) for fold in engine_folds],
        after=after,
        layer_errors=layer_errors(layers, shipped, folds),
        table6=table6_estimates(_beside(path, "paper_table6.csv", table6_rows), shipped),
        wide=wide(every, wide_folds, shipped, found, seeds=seeds) if beside else None,
        old_engines=old_engines(shipped, batches),
    )


def _fitted(
    path: Path,
    runs: Sequence[ServingRun],
    folds: Sequence[Fold],
    layers: Sequence[LayerRun],
    batches: Sequence[ServingRun],
    *,
    reference: Sequence[Score],
) -> Calibration:
    """Fits the calibration on every run, rounded as it is written."""
    tell("the fit on every run, and how errors hang together")
    found = fit(runs, layers, prior_calibration(), REFERENCE_ENGINE)
    found = with_uncertainty(found, scores(runs, folds) if folds else reference, reference)
    found = with_old_engines(found, batches) if batches else found
    if folds:
        unseen = answers(runs, folds, "GPU", closed_form)
        found = replace(found, compared=compared(unseen, shipped_calibration()))
    return calibration_from_toml(calibration_toml(found, path, [], layers))


def _sources(runs: Sequence[ServingRun], shipped: Calibration) -> dict[str, Answers]:
    found = {
        ROOFLINE: Answers(runs, closed_form(runs, shipped)),
        SIMULATED: Answers(runs, simulated(runs, shipped)),
    }
    if missing() is None:
        tell("the operator database")
        found[OPERATORS] = Answers(runs, by_operators(runs, shipped))
    return found


def _beside(path: Path, name: str, read: Callable[[Path], list[Row]]) -> list[Row]:
    beside = path.with_name(name)
    if beside.exists():
        return read(beside)
    tell(f"{name} is not beside {path.name}: left out")
    return []
