"""The bands that a calibration states, from the errors of runs that fits left out.

Flow: coverage.py (scores), correlation.py -> with_uncertainty (here) -> calibrated.py, calibration.toml.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.accuracy.correlation import fitted_correlation
from benchmarks.accuracy.coverage import Score, conformal_band, rounded_outwards
from sutler.solver.calibration.factors import Calibration

LEAST_ROWS: Final = 40  # chosen: runs are there once per kind of group, and nine of ten of fewer say little


def with_uncertainty(calibration: Calibration, found: Sequence[Score], reference: Sequence[Score]) -> Calibration:
    """States the band within which nine of ten left-out runs lie: of the GPU classes of `reference` that of those
    runs; of each other class with LEAST_ROWS dense runs in `found` that of its own, and of experts and of weight-only
    kernels that of theirs, none narrower than the first. Errors hang together as those of `found` do."""
    dense = defaultdict[str, list[Score]](list)
    for score in found:
        if score.run.spec.moe is None:
            dense[calibration.gpu_class(score.run.gpu).name].append(score)
    served = {calibration.gpu_class(score.run.gpu).name for score in reference}
    measured = _band([score for name in served for score in dense[name]])
    classes = tuple(
        replace(one, band=measured)
        if one.name in served
        else replace(one, band=max(_band(dense[one.name]), measured))
        if len(dense[one.name]) >= LEAST_ROWS
        else one
        for one in calibration.gpu_classes
    )
    experts = [score for score in found if score.run.spec.moe is not None]
    weight_only = [score for score in found if score.run.precision in ("int4", "int8")]
    priors = calibration.priors
    if len(experts) >= LEAST_ROWS:
        priors = replace(priors, expert_band=max(_band(experts), measured))
    if len(weight_only) >= LEAST_ROWS:
        priors = replace(priors, weight_only_band=max(_band(weight_only), measured))
    return replace(
        calibration,
        gpu_classes=classes,
        priors=priors,
        correlation=fitted_correlation(found, calibration),
    )


def _band(found: Sequence[Score]) -> float:
    return rounded_outwards(conformal_band(found))
