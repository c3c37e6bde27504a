"""The planner: a problem in, a proven plan out; it knows nothing of clouds, databases or the web.

The front door. `solve` and what it needs are imported on first use, so that the catalogue alone stays quick.
"""

from typing import TYPE_CHECKING, Any

from sutler.solver.errors import InvalidProblemError, PlanViolationError, SolverError, UnknownNameError
from sutler.solver.plan import Plan
from sutler.solver.problem import Problem
from sutler.solver.progress import Progress

if TYPE_CHECKING:
    from sutler.solver.planner import solve

__all__ = [
    "InvalidProblemError",
    "Plan",
    "PlanViolationError",
    "Problem",
    "Progress",
    "SolverError",
    "UnknownNameError",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name == "solve":
        from sutler.solver.planner import solve

        return solve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
