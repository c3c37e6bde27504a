"""What a user's own runs say about rates near them, beyond what factors can: kriging of the roofline's errors.

Flow: refit.py fits factors, then krige(runs, their remaining errors) -> Corrections -> corrected.py, runs.predict.

The logarithm of measured over predicted requests/s is taken for a Gaussian process with mean zero (Rasmussen &
Williams 2006, ch. 2). Two runs x, y whose GPU, model and precision differ in d of the three share

    k(x, y) = s_x s_y difference_fraction^d (common^2 + local^2 exp(-1/2 sum_i (z_xi - z_yi)^2 / octaves_i^2))

z are base-2 logarithms of input tokens, output tokens, concurrency and tensor parallelism. s is how uncertain the
prediction was before: 1 where a GPU class was measured, more where its band is wider, so that there a run moves more.
Each run has an error of its own, `noise`. So a prediction meets the runs where they are, goes over into the roofline
away from them, and the variance that is left says how far either is to be believed.

A rate does not say what of a request's time its prompt took. Runs with one request in flight do, since nothing comes
between its tokens: how much longer decode steps take against prompts than predicted is kriged likewise (`phases`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray

# A Cholesky factor of this many takes milliseconds; beyond, neighbours are merged first.
MOST_POINTS: Final = 400
BLOCK: Final = 1 << 13  # questions at a time, so that memory stays at some ten megabytes
LEAST_BAND: Final = 1.05  # what repeated runs of one configuration differ by
# What is left of a variance that was itself only estimated: with this, nine of ten runs of left-out groups are within
# the band after five runs of the group (docs/accuracy.md).
NARROWED: Final = 1.1


@dataclass(frozen=True, slots=True)
class Correlation:
    """How errors of the roofline hang together; standard deviations of logarithms, and octaves (factors of two)."""

    common: float
    local: float
    noise: float
    difference_fraction: float
    input_octaves: float
    output_octaves: float
    concurrency_octaves: float
    tensor_parallel_octaves: float

    @property
    def variance(self) -> float:
        """The variance of the error of a run about which nothing is known, with spread 1."""
        return self.common**2 + self.local**2 + self.noise**2

    @property
    def octaves(self) -> FloatArray:
        """The correlation lengths in the order of RunPoints.log2."""
        return np.array(
            [self.input_octaves, self.output_octaves, self.concurrency_octaves, self.tensor_parallel_octaves]
        )


@dataclass(frozen=True, slots=True)
class RunPoints:
    """Runs, or questions. log2 [n, 4] of input tokens, output tokens, concurrency, tensor parallelism; labels:
    (GPU, model, precision) of each; spread [n]: how wide its band is against that of a measured class (logarithms).
    """

    log2: FloatArray
    labels: tuple[tuple[str, str, str], ...]
    spread: FloatArray

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, part: slice) -> "RunPoints":
        return RunPoints(self.log2[part], self.labels[part], self.spread[part])


@dataclass(frozen=True, slots=True)
class Corrections:
    """Kriged errors of runs of one engine: errors, noise [n] and, derived, weights [n] and inverse [n, n].

    runs: how many runs the points stand for. least_band: what the engine alone made of every band before. share: how
    far they are followed, from 0 to 1 (refit.py). phases: the same of decode steps against prompts; None: no run
    tells one from the other, and all seconds are corrected alike.
    """

    correlation: Correlation
    engine: str
    points: RunPoints
    errors: FloatArray
    noise: FloatArray
    weights: FloatArray
    inverse: FloatArray
    runs: int
    least_band: float = 1.0
    share: float = 1.0
    phases: "Corrections | None" = None

    def followed(self, share: float) -> Self:
        """The same, followed so far."""
        return replace(self, share=share, phases=self.phases and self.phases.followed(share))

    def told(self, errors: FloatArray) -> Self:
        """The same runs with other errors [n]."""
        return replace(self, errors=errors, weights=self.inverse @ errors)

    def at(self, questions: RunPoints) -> tuple[FloatArray, FloatArray]:
        """Mean log of measured over predicted [n], and what is left of the variance as a share of it [n]."""
        blocks = [self._block(questions.only(slice(at, at + BLOCK))) for at in range(0, len(questions), BLOCK)]
        means, left = zip(*blocks, strict=True)
        return self.share * np.concatenate(means), 1.0 - self.share * (1.0 - np.concatenate(left))

    def split(
        self, questions: RunPoints, slower: FloatArray, stepping_fraction: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Factors [n] on what prompts take of the time of a request, and on what its own decode steps do.

        All of it takes `slower` [n] times as long; the steps are a share `stepping_fraction` [n] of it."""
        if self.phases is None:
            return slower, slower
        ratio = np.exp(self.phases.mean(questions))
        prompts = slower / (1.0 + stepping_fraction * (ratio - 1.0))
        return prompts, prompts * ratio

    def mean(self, questions: RunPoints) -> FloatArray:
        """What `at` says, without how sure it is."""
        parts = [questions.only(slice(at, at + BLOCK)) for at in range(0, len(questions), BLOCK)]
        means = [_kernel(self.correlation, part, self.points) @ self.weights for part in parts]
        return self.share * np.concatenate(means)

    def _block(self, questions: RunPoints) -> tuple[FloatArray, FloatArray]:
        shared = _kernel(self.correlation, questions, self.points)
        explained = ((shared @ self.inverse) * shared).sum(axis=1)
        before = questions.spread**2 * (self.correlation.variance - self.correlation.noise**2)
        noise = self.correlation.noise**2
        left = (np.maximum(before - explained, 0.0) + noise) / (before + noise)
        return np.asarray(shared @ self.weights), np.asarray(left)


def narrowed(bands: FloatArray, left: FloatArray) -> FloatArray:
    """Error factors after runs that leave a share `left` of the variance; never wider than `bands` before, nor
    narrower than LEAST_BAND."""
    share = np.minimum(NARROWED * np.sqrt(left), 1.0)
    return np.asarray(np.maximum(np.exp(np.log(bands) * share), LEAST_BAND))


def krige(
    correlation: Correlation, engine: str, points: RunPoints, errors: FloatArray, *, least_band: float = 1.0
) -> Corrections:
    """`errors` [n]: log of measured over predicted requests/s, of runs of `engine`."""
    runs = len(points)
    points, errors, counts = _merged(points, errors)
    noise = correlation.noise / np.sqrt(counts)
    return restored(correlation, engine, points, errors, noise, runs=runs, least_band=least_band)


def restored(
    correlation: Correlation,
    engine: str,
    points: RunPoints,
    errors: FloatArray,
    noise: FloatArray,
    *,
    runs: int,
    least_band: float,
    share: float = 1.0,
) -> Corrections:
    """Adds what can be derived from the rest."""
    linalg = scipy.linalg
    factor = linalg.cho_factor(covariance(correlation, points) + np.diag(noise**2))
    weights, inverse = linalg.cho_solve(factor, errors), linalg.cho_solve(factor, np.eye(len(points)))
    return Corrections(correlation, engine, points, errors, noise, weights, inverse, runs, least_band, share)


def covariance(correlation: Correlation, points: RunPoints) -> FloatArray:
    """The covariance [n, n] of the errors of runs, without their own noise."""
    return _kernel(correlation, points, points)


def _kernel(correlation: Correlation, left: RunPoints, right: RunPoints) -> FloatArray:
    differing = np.zeros((len(left), len(right)))
    for column in range(3):
        code = {name: number for number, name in enumerate({one[column] for one in (*left.labels, *right.labels)})}
        ours, theirs = (np.array([code[one[column]] for one in side.labels]) for side in (left, right))
        differing += ours[:, None] != theirs[None, :]
    squares = np.zeros_like(differing)
    for axis, octaves in enumerate(correlation.octaves):
        squares += ((left.log2[:, None, axis] - right.log2[None, :, axis]) / octaves) ** 2
    near = np.exp(-0.5 * squares)
    shared = correlation.common**2 + correlation.local**2 * near
    scale = left.spread[:, None] * right.spread[None, :]
    return np.asarray(scale * correlation.difference_fraction**differing * shared)


def _merged(points: RunPoints, errors: FloatArray) -> tuple[RunPoints, FloatArray, FloatArray]:
    """Merges runs until at most MOST_POINTS are left: runs of one cell become their mean; cells grow until that
    holds. Counts come last."""
    cell_octaves = 0.01
    while True:
        cells = [
            (labels, *np.round(log2 / cell_octaves).tolist())
            for labels, log2 in zip(points.labels, points.log2, strict=True)
        ]
        if len(set(cells)) <= MOST_POINTS:
            return _means(points, errors, cells)
        cell_octaves = max(2 * cell_octaves, 0.25)


def _means(
    points: RunPoints, errors: FloatArray, cells: Sequence[tuple[object, ...]]
) -> tuple[RunPoints, FloatArray, FloatArray]:
    place = {cell: index for index, cell in enumerate(dict.fromkeys(cells))}
    cell = np.array([place[one] for one in cells], dtype=np.int64)
    counts = np.bincount(cell).astype(np.float64)
    first = np.unique(cell, return_index=True)[1]
    log2 = np.stack([np.bincount(cell, points.log2[:, i]) / counts for i in range(points.log2.shape[1])], axis=1)
    merged = replace(
        points, log2=log2, labels=tuple(points.labels[int(i)] for i in first), spread=points.spread[first]
    )
    return merged, np.bincount(cell, errors) / counts, counts
