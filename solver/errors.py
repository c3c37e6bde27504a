"""What can go wrong, split by what the caller can do about it.

    SolverError
    ├── InvalidProblemError     the problem contradicts itself: correct the named field
    ├── UnknownNameError        a GPU or model is not in the catalogue: use a listed one or describe it inline
    ├── EngineError             HiGHS gave up on a program: a defect, report it with the problem
    ├── PlanViolationError      a plan failed verification: a defect of sutler, never shown as a plan
    └── ProfilingError          nothing can be timed on this machine
        ├── NoTorchError        PyTorch is not installed: install the extra
        └── NoDeviceError       torch finds no GPU: run where there is one

Infeasible, unproven and interrupted solves are not errors: they are plans with that status.
"""


class SolverError(Exception):
    """Root of everything the solver raises."""


class InvalidProblemError(SolverError):
    """A value that no plan can be made from.

    `field` is the path in the caller's document (``models[0].workloads[1].rate_rps``).
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        super().__init__(f"{field}: {value!r}: {remedy}")


class UnknownNameError(InvalidProblemError):
    """A name that the catalogue does not hold."""


class EngineError(SolverError):
    """HiGHS ended with an error of its own."""


class PlanViolationError(SolverError):
    """Verification rejected a plan; `violations` says where and why."""

    def __init__(self, violations: tuple[str, ...]) -> None:
        self.violations = violations
        super().__init__("; ".join(violations))


class ProfilingError(SolverError):
    """No layer can be timed here; the message says what to do about it."""


class NoTorchError(ProfilingError):
    """PyTorch cannot be imported."""


class NoDeviceError(ProfilingError):
    """PyTorch finds no GPU that it can use."""
