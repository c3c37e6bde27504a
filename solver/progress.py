"""What a running solve reports: where it is and how good the best plan so far is."""

from dataclasses import dataclass


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
