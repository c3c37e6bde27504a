"""How errors of the roofline hang together, fitted to those on groups that were left out.

Type-II maximum likelihood (Rasmussen & Williams 2006, §5.4.1): the scores of one fold and engine are one draw of the
Gaussian process that solver/calibration/corrections.py kriges with, and its eight numbers are those under which the
draws are likeliest (scipy.optimize.minimize, L-BFGS-B, over their logarithms; of difference_fraction over that of
-log). With K the covariance of a draw e: -log p(e) = (e' K^-1 e + log |K|) / 2 + constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from benchmarks.accuracy.coverage import Score
from benchmarks.accuracy.errors import FloatArray
from sutler.solver.calibration.corrections import Correlation
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.runs import points_of

LEAST_ROWS: Final = 15
MOST_ROWS: Final = 120
# A few runs that are off by more say nothing about the others.
LARGEST_LOG_ERROR: Final = 0.4
MOST_ITERATIONS: Final = 60


@dataclass(frozen=True, slots=True)
class Draw:
    """The errors [n] of one fold and engine; differing [n, n]: how many of GPU, model and precision are not shared;
    squared_octaves [4, n, n] between input, output, concurrency and tensor parallelism."""

    errors: FloatArray
    differing: FloatArray
    squared_octaves: FloatArray


def fitted_correlation(found: Sequence[Score], start: Calibration) -> Correlation:
    """The likeliest; that of `start` without LEAST_ROWS scores of one fold and engine."""
    draws = _draws(found, start)
    if not draws:
        return start.correlation
    solution = minimize(
        lambda moves: _negative_log_likelihood(moves, draws),
        _moves(start.correlation),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_ITERATIONS},
    )
    return _correlation(solution.x)


def _draws(found: Sequence[Score], start: Calibration) -> list[Draw]:
    of_draw: dict[tuple[str, str, str], list[Score]] = {}
    for score in found:
        of_draw.setdefault((score.fold.kind, score.fold.group, score.run.engine), []).append(score)
    return [_draw(scores, start) for scores in of_draw.values() if len(scores) >= LEAST_ROWS]


def _draw(found: Sequence[Score], start: Calibration) -> Draw:
    chosen = found
    if len(found) > MOST_ROWS:
        places = np.random.default_rng(0).choice(len(found), MOST_ROWS, replace=False)
        chosen = [found[i] for i in places]
    points = points_of([score.run for score in chosen], start)
    errors = np.array([-score.log_error for score in chosen])
    differing = np.array(
        [[sum(x != y for x, y in zip(a, b, strict=True)) for a in points.labels] for b in points.labels]
    )
    steps = points.log2.T[:, :, None] - points.log2.T[:, None, :]
    return Draw(np.clip(errors, -LARGEST_LOG_ERROR, LARGEST_LOG_ERROR), differing.astype(np.float64), steps**2)


def _moves(correlation: Correlation) -> FloatArray:
    octaves = correlation.octaves
    rest = [correlation.common, correlation.local, correlation.noise, -np.log(correlation.difference_fraction)]
    return np.asarray(np.log(np.array([*rest, *octaves])))


def _correlation(moves: FloatArray) -> Correlation:
    common, local, noise, decay, *octaves = (float(one) for one in np.exp(moves))
    return Correlation(common, local, noise, float(np.exp(-decay)), *octaves)


def _negative_log_likelihood(moves: FloatArray, draws: Sequence[Draw]) -> tuple[float, FloatArray]:
    """Computes the likelihood with its gradient [8]."""
    parts = [_of_draw(np.exp(moves), draw) for draw in draws]
    return sum(value for value, _ in parts), np.sum([gradient for _, gradient in parts], axis=0)


def _of_draw(parameters: FloatArray, draw: Draw) -> tuple[float, FloatArray]:
    common, local, noise, decay = parameters[:4]
    octaves = draw.squared_octaves / parameters[4:, None, None] ** 2
    shared = np.exp(-decay * draw.differing)
    near = local**2 * shared * np.exp(-0.5 * octaves.sum(axis=0))
    far = common**2 * shared
    identity = np.eye(len(draw.errors))
    factor = cho_factor(near + far + noise**2 * identity, lower=True)
    weights, inverse = cho_solve(factor, draw.errors), cho_solve(factor, identity)
    value = 0.5 * draw.errors @ weights + np.log(np.diag(factor[0])).sum()
    slopes = [2 * far, 2 * near, 2 * noise**2 * identity, -decay * draw.differing * (near + far), *(near * octaves)]
    pull = inverse - np.outer(weights, weights)
    return float(value), np.array([0.5 * float((pull * slope).sum()) for slope in slopes])
