"""From stored runs to a named calibration: pure.

Flow: ProfileRun, LayerRow -> calibrated (here) -> solver/throughput/refit -> CalibrationDocument.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from sutler.service.documents.calibration import CalibrationDocument, CalibrationErrors
from sutler.service.documents.fields import finite
from sutler.service.documents.validation import validate
from sutler.service.profiles.checks import DESCRIBE
from sutler.service.profiles.errors import NothingToFitError
from sutler.service.profiles.layer_rows import LayerRow
from sutler.service.profiles.runs import ProfileRun, serving_run
from sutler.service.translation.calibrations import fitted_parts
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog import PRECISIONS
from sutler.solver.throughput.architecture import layer_work
from sutler.solver.throughput.refit import Refit, RunErrors, refit
from sutler.solver.throughput.runs import LayerRun, with_room
from sutler.solver.version import VERSION

OUTLIER: Final = 1.5  # times off; chosen: beyond the error bands of estimates, so that it is the run which is wrong
MOST_DOUBTED: Final = 0.5  # chosen: of the way to the fit; below, the runs say little about others like them
MOST_OUTLIERS: Final = 3  # are named; chosen: who measures those again sees the next


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The document, each run with how far off it was, and what was left out and why."""

    document: CalibrationDocument
    runs: tuple[ProfileRun, ...]
    result: Refit
    notes: tuple[str, ...]


def calibrated(
    name: str,
    runs: Sequence[ProfileRun],
    layers: Sequence[LayerRow],
    *,
    now: datetime,
    names: Names = CATALOGUE,
) -> Calibrated:
    """Fits to what can be used. Raises NothingToFitError where that is nothing, or runs of several engines."""
    known = [run for run in runs if names.has(run.key.gpu, run.key.model)]
    single = tuple(run for run in known if run.pipeline_parallel == 1)
    engines = sorted({run.key.engine for run in single})
    if len(engines) > 1:
        raise NothingToFitError(
            f"the runs are of several engines ({', '.join(engines)})", "calibrate each on its own, with --engine"
        )
    measured = [row for row in layers if row.phase != "all_reduce"]
    usable = [row for row in measured if names.has(row.gpu, row.model)]
    layer_runs = [_layer_run(row, names) for row in usable]
    serving = [serving_run(run, names) for run in single]
    titles = sorted({shipped_calibration().engine(run.engine).title for run in serving})
    if len(titles) > 1:
        raise NothingToFitError(
            f"the runs are of versions that are not alike ({', '.join(titles)})",
            "calibrate each on its own, with --engine-version",
        )
    tight = len(single) - len(with_room(serving))
    lost = len(runs) - len(known), len(measured) - len(usable)
    left_out = list(_left_out(*lost, len(known) - len(single), tight))
    if len(single) == tight and not layer_runs:
        raise NothingToFitError(
            "; ".join(["no run fits", *left_out]),
            "import some (`sutler profiles import FILE`), or loosen the filters (`sutler profiles list`)",
        )
    result = refit(serving, layer_runs, shipped_calibration())
    notes = [*left_out, *_remarks(single, result)]
    document = _document(name, single, len(layer_runs), result, now)
    return Calibrated(document, single, result, tuple(notes))


def _document(
    name: str, runs: Sequence[ProfileRun], layers: int, result: Refit, now: datetime
) -> CalibrationDocument:
    versions = tuple(sorted({run.key.engine_version for run in runs} - {""}))
    return validate(
        CalibrationDocument,
        {
            "schema": "sutler/calibration/v1",
            "name": name,
            "revision": 0,
            "created_at": now,
            "sutler": VERSION,
            "engine_versions": versions,
            "runs": len(runs),
            "layer_times": layers,
            "before": _errors(result.before),
            "after": _errors(result.after),
            "left_out": _errors(result.left_out),
            **fitted_parts(result.calibration),
        },
    )


def _errors(errors: RunErrors) -> CalibrationErrors | None:
    if not len(errors.req_per_s):
        return None
    found = {}
    for name, values in (("req_per_s", errors.req_per_s), ("ttft", errors.ttft_s), ("tpot", errors.tpot_s)):
        sizes = np.abs(np.exp(values[np.isfinite(values)]) - 1)
        found[f"{name}_median_fraction"] = finite(float(np.median(sizes))) if len(sizes) else None
        found[f"{name}_p90_fraction"] = finite(float(np.quantile(sizes, 0.9))) if len(sizes) else None
    return CalibrationErrors(**found)


def _layer_run(row: LayerRow, names: Names) -> LayerRun:
    spec = names.model(row.model)
    precision = next(one for one in PRECISIONS if one == row.precision)
    work = layer_work(spec, precision, precision)
    has_attention = row.attention == "included"
    new, total = np.array(float(row.new_tokens)), np.array(float(row.context_tokens))
    pairs = float(work.attended_pairs(new, total)) * row.batch if has_attention and row.phase == "prefill" else 0.0
    seen = row.batch * float(work.seen_context(total)) if has_attention and row.phase == "decode" else 0.0
    return LayerRun(
        gpu=names.gpu(row.gpu),
        spec=spec,
        precision=precision,
        tensor_parallel=row.tp,
        tokens=float(row.new_tokens * row.batch),
        seconds=row.seconds,
        prefill_pairs=pairs,
        decode_seen=seen,
    )


def _left_out(unknown: int, unknown_layers: int, pipelines: int, tight: int) -> Iterable[str]:
    reasons = {
        f"runs are left out: their GPU or model is not in the catalogue; {DESCRIBE}": unknown,
        f"layer times are left out: their GPU or model is not in the catalogue; {DESCRIBE}": unknown_layers,
        "runs are not fitted to: their weights leave no room, so they measure what the engine kept": tight,
        "runs of pipelines are left out: a calibration is fitted to runs of one stage": pipelines,
    }
    return (f"{count} {reason}" for reason, count in reasons.items() if count)


def _remarks(runs: Sequence[ProfileRun], result: Refit) -> Iterable[str]:
    versions = {run.key.engine_version for run in runs}
    if len(versions) > 1:
        named = ", ".join(sorted(version or "unknown" for version in versions))
        yield f"versions of the engine are mixed ({named}); --engine-version keeps one"
    if len(runs) > 1:
        for what, share in (("rates", result.rates_share), ("first tokens", result.first_token_share)):
            if share < MOST_DOUBTED:
                yield (
                    f"{what} follow these runs by {share:.0%}: the shipped calibration predicts them about as well "
                    "as they predict each other. Is there something that they differ in (speculation, expert "
                    "parallelism, eager mode, version)? Calibrate each kind apart"
                )
    yield from _outliers(runs, result)
    if 0 < len(runs) < 3:
        yield "with fewer than three runs the left-out error says little: measure a few more"


def _outliers(runs: Sequence[ProfileRun], result: Refit) -> Iterable[str]:
    """The runs that the others contradict most."""
    off = np.exp(np.abs(result.left_out.req_per_s)) if len(runs) > 2 else np.array([])
    for at in np.argsort(-off)[:MOST_OUTLIERS]:
        if off[at] > OUTLIER:
            run = runs[int(at)]
            yield (
                f"the run of {run.key.model} on {run.tensor_parallel} x {run.key.gpu} with {run.input_tokens:g} + "
                f"{run.output_tokens:g} tokens and {run.concurrency:.3g} in flight ({run.req_per_s:.4g} req/s) is "
                f"{off[at]:.1f} times off what the others say: measure it again, or import it as it really was"
            )
