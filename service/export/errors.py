"""What can keep a plan from being exported. Wrong fields of the plan are a DocumentError of service.plans.errors.

ExportError
└── NothingToRunError   the plan runs nothing that the format could start: make another plan or take another format
"""

from service.plans.errors import PlanningError


class ExportError(PlanningError):
    """Root of everything that service.export raises on its own."""


class NothingToRunError(ExportError):
    """No replica of the plan can be started."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}: {remedy}")
