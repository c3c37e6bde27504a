"""What can be wrong with the documents a caller hands in, split by what the caller can do about it.

PlanningError
├── DocumentError       a document cannot be read or a field is wrong: correct the named fields
├── NoMarketDataError   nothing to plan with: poll a market, name a snapshot or loosen the filter
└── OutputError         the plan cannot be written where the caller asked
"""

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 2, 60, 60, 40
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 3


def short_repr(value: object) -> str:
    """A value as an error message shows it: recognisable, on one line, never long."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print integers beyond 4300 digits
        return "a huge number"


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """`field` is the path in the caller's document, `value` what stands there (None: nothing)."""

    field: str
    value: str | None
    remedy: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value}:"
        return f"{self.field}:{shown} {self.remedy}"


class PlanningError(Exception):
    """Root of everything service.plans raises."""


class DocumentError(PlanningError):
    """A document that no plan can be made from; `problems` names every field found wrong."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, field: str, remedy: str, **given: object) -> "DocumentError":
        """One wrong field; pass `value=` where there is one to show."""
        value = short_repr(given["value"]) if "value" in given else None
        return cls([FieldProblem(field, value, remedy)])


class NoMarketDataError(PlanningError):
    """No offers to plan with."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}: {remedy}")


class OutputError(PlanningError):
    """The result cannot be written to the path that was asked for."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(f"{path}: {reason}: {remedy}")
