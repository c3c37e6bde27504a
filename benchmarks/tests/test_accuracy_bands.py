"""Bands are the quantiles that conformal prediction asks for; the correlation is the one that errors came from."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.accuracy.bands import with_uncertainty
from benchmarks.accuracy.calibrated import narrowed_bands
from benchmarks.accuracy.correlation import fitted_correlation
from benchmarks.accuracy.coverage import Score, conformal_band, covered, outside, pooled_fraction, rounded_outwards
from benchmarks.accuracy.held_out import Fold, prior_calibration
from benchmarks.tests.test_accuracy import case
from sutler.solver.calibration.corrections import Correlation, covariance
from sutler.solver.throughput.runs import ServingRun, points_of

PRIOR = prior_calibration()
RUN = case("h100-sxm", "vllm", "llama-3.1-8b", 1, (512, 32), 4)


def fold(group: str = "h100-sxm") -> Fold:
    return Fold("GPU", group, np.array([0]), PRIOR, 0, 0)


def scored(*log_errors: float, of: Fold | None = None, run: ServingRun = RUN) -> list[Score]:
    return [Score(of or fold(), run, one) for one in log_errors]


def test_the_band_of_nineteen_errors_is_the_eighteenth() -> None:
    # ceil(0.9 * 20) = 18
    assert conformal_band(scored(*(0.02 * (i + 1) for i in range(19)))) == pytest.approx(np.exp(0.36))


def test_the_band_of_few_errors_is_their_largest_and_never_below_a_tenth() -> None:
    assert conformal_band(scored(0.1, -0.3, 0.2)) == pytest.approx(np.exp(0.3))
    assert conformal_band(scored(0.01)) == conformal_band([]) == 1.1


def test_bands_are_rounded_outwards() -> None:
    assert rounded_outwards(1.181) == 1.19
    assert rounded_outwards(1.1) == 1.1


def test_a_group_is_covered_by_what_lies_outside_it() -> None:
    mine, other = fold(), fold("b200")
    of_other = scored(0.3, of=other, run=case("b200", "vllm", "llama-3.1-8b", 1, (512, 32), 4))
    found = [*scored(0.1, -0.2, 0.5, of=mine), *of_other]
    assert outside(found, mine) == of_other
    one = covered(found, mine, 1.25)
    assert (one.inside, one.rows) == (2, 3)  # log 1.25 = 0.223
    assert covered(found, mine, 1.25, engine="sglang").rows == 0
    assert pooled_fraction([one, covered(found, other, 1.25)]) == 0.5


def test_without_runs_of_ones_own_no_band_is_narrowed() -> None:
    found = scored(*[0.26] * 10)
    stated = with_uncertainty(PRIOR, found, found)
    assert narrowed_bands([found[0].run], stated).tolist() == [1.3]  # e^0.26, rounded outwards


def test_the_correlation_is_found_that_errors_were_drawn_with() -> None:
    truth = Correlation(0.05, 0.12, 0.02, 0.6, 2.0, 2.0, 2.0, 2.0)
    draw = np.random.default_rng(1)
    loads = product([256, 1024, 4096], [64, 512], [1, 4, 16, 64])
    grid = [case("h100-sxm", "vllm", "llama-3.1-8b", 1, (one, two), n) for one, two, n in loads]
    runs = [*grid, *(replace(run, gpu=case("b200", "vllm", "qwen3-32b", 1, (1, 1), 1).gpu) for run in grid)]
    points = points_of(runs, replace(PRIOR, correlation=truth))
    spread = covariance(truth, points) + truth.noise**2 * np.eye(len(runs))
    found = []
    for group in range(30):
        errors = draw.multivariate_normal(np.zeros(len(runs)), spread)
        of_group = fold(str(group))
        found += [Score(of_group, run, float(error)) for run, error in zip(runs, errors, strict=True)]
    fitted = fitted_correlation(found, PRIOR)
    for name, within in (("local", 0.1), ("noise", 0.1), ("difference_fraction", 0.15), ("input_octaves", 0.15)):
        assert getattr(fitted, name) == pytest.approx(getattr(truth, name), rel=within), name
