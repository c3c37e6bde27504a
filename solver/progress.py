"""What a running solve is told of time, and what it reports: where it is and how good the best plan so far is."""

from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
"""Monotonic seconds."""

SecondsLeft = Callable[[], float]
"""The seconds that are left of a time limit now; 0 or less: it is over."""


def at_most(seconds: float, seconds_left: SecondsLeft) -> SecondsLeft:
    """From now on so many of the seconds that are left."""
    kept = max(0.0, seconds_left() - seconds)
    return lambda: seconds_left() - kept


@dataclass(frozen=True, slots=True)
class Progress:
    """One report. `value` and `bound` are in the objective's unit; None: not known yet.

    `seconds` counts from the start of the solve. `candidates` is how many configurations are still considered.
    """

    phase: str
    seconds: float
    candidates: int | None = None
    value: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
