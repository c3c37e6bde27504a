"""When two numbers of a plan count as equal.

Sums and products of figures that the plan carries must agree to rounding (`same`). Rates rest on an optimiser's
solution, whose rows hold to about 1e-7 of their size (`agrees`).
"""

SUM_TOLERANCE = 1e-9
RATE_TOLERANCE = 1e-6


def same(value: float, expected: float) -> bool:
    return _within(value, expected, SUM_TOLERANCE)


def agrees(value: float, expected: float) -> bool:
    return _within(value, expected, RATE_TOLERANCE)


def at_most(value: float, limit: float, tolerance: float = SUM_TOLERANCE) -> bool:
    return value <= limit + tolerance * abs(limit)


def _within(value: float, expected: float, tolerance: float) -> bool:
    return abs(value - expected) <= tolerance * max(abs(value), abs(expected))
