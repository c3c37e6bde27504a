"""What can keep a plan from being exported. Wrong fields of the plan, and replicas that a format cannot start, are a
DocumentError of service.plans.errors.

ExportError
└── NothingToRunError   the plan runs nothing: make another plan
"""

from service.plans.errors import PlanningError


class ExportError(PlanningError):
    """Root of everything that service.export raises on its own."""


class NothingToRunError(ExportError):
    """The plan has no replicas."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}: {remedy}")
