"""From the lengths of an application file to the solver's distributions of whole numbers.

Flow: files.py has put the content of files in their place -> solver_lengths (here) -> translate.py.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.lengths_schema import (
    MOST_TOKENS,
    EmpiricalCounts,
    EmpiricalLengths,
    LengthsDocument,
    LognormalLengths,
    LognormalShape,
    QuantileCurve,
    QuantileLengths,
    UniformLengths,
    UniformRange,
)
from sutler.service.translation.market_source import path_refused
from sutler.solver.arrays import FloatArray
from sutler.solver.offline.application import LengthDistribution

POINTS: Final = 1_000
"""Equal shares that a distribution is cut into; each stands for the length at its middle.

Chosen: tails of a thousandth are in a plan, and a distribution stays small enough to draw from quickly."""


def solver_lengths(document: LengthsDocument, *, field: str, least: int) -> LengthDistribution:
    """The distribution, of at most 1,000 lengths where it is given as a formula.

    Raises DocumentError, naming `field`, where a length is below `least`, and for files.
    """
    found = _lengths(document, field)
    if found.values[0] < least:
        remedy = f"comes to lengths of {found.values[0]}: all must be at least {least}"
        raise DocumentError.of(field, remedy, value=_shown(document))
    return found


def _lengths(document: LengthsDocument, field: str) -> LengthDistribution:
    match document:
        case int():
            return LengthDistribution.always(document)
        case UniformLengths():
            return _uniform(document.uniform)
        case LognormalLengths():
            return _lognormal(document.lognormal)
        case EmpiricalLengths():
            return _empirical(document.empirical)
        case QuantileLengths():
            return _quantiles(document.quantiles)
        case _:
            raise path_refused(f"{field}.file.path", document.file.path)


def _uniform(given: UniformRange) -> LengthDistribution:
    count = min(given.high - given.low + 1, POINTS)
    return _rounded(np.linspace(given.low, given.high, count))


def _lognormal(given: LognormalShape) -> LengthDistribution:
    """ln X is normal with variance ln(1 + (sd/mean)^2) and mean ln(mean) - variance / 2."""
    variance = math.log1p((given.standard_deviation / given.mean) ** 2)
    centre = math.log(given.mean) - variance / 2
    normal = NormalDist()
    exponents = centre + math.sqrt(variance) * np.array([normal.inv_cdf(share) for share in _middles().tolist()])
    high = MOST_TOKENS if given.high is None else given.high
    return _rounded(np.clip(np.exp(np.minimum(exponents, math.log(MOST_TOKENS))), given.low, high))


def _empirical(given: EmpiricalCounts) -> LengthDistribution:
    weights = np.ones(len(given.tokens)) if given.weights is None else np.array(given.weights)
    values, inverse = np.unique(np.array(given.tokens, dtype=np.int64), return_inverse=True)
    shares = np.bincount(inverse, weights=weights)
    seen = shares > 0
    cumulative = np.cumsum(shares[seen]) / shares.sum()
    return LengthDistribution(tuple(values[seen].tolist()), (*cumulative[:-1].tolist(), 1.0))


def _quantiles(given: QuantileCurve) -> LengthDistribution:
    return _rounded(np.interp(_middles(), given.fractions, given.tokens))


def _middles() -> FloatArray:
    return (np.arange(POINTS) + 0.5) / POINTS


def _rounded(values: FloatArray) -> LengthDistribution:
    found: Sequence[int] = np.rint(values).astype(np.int64).tolist()
    return LengthDistribution.of_sample(found)


def _shown(document: LengthsDocument) -> object:
    return document if isinstance(document, int) else document.model_dump()
