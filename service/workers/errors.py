"""What can go wrong between a worker and its solver process; both are our fault or the machine's.

SolvingError
├── SolverDefectError   the solver raised what it should not: the text is its traceback
└── SolverLostError     the process died or did not end
    └── SolveTooLargeError  it needed more memory than it may have
"""


class StoppingError(Exception):
    """The worker is told to end: others are to do it."""


class SolvingError(Exception):
    """Root of both."""


class SolverDefectError(SolvingError):
    """A defect of the solver."""


class SolverLostError(SolvingError):
    """The solver process ended without an answer, and none will come."""


class SolveTooLargeError(SolverLostError):
    """The solver process ran out of the memory that it may have (SUTLER_MOST_SOLVE_BYTES)."""
