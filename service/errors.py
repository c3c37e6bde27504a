"""The root of what the service raises on purpose: a class has its kind and exit status, an error says what to do.

The API answers with the kind as an RFC 9457 problem (web/problem.py), the command line ends with the exit status
(cli/terminal/exits.py). Each room's errors.py draws its own branch of the tree.
"""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Final

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


class Exit(IntEnum):
    """How commands end: what scripts may rely on."""

    PLANNED = 0
    OUR_FAULT = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    NO_MARKET_DATA = 4
    NO_PLAN_IN_TIME = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: its HTTP status, the stable end of its `type`, and its title."""

    status: int
    slug: str
    title: str


DEFECT: Final = Kind(500, "defect", "A defect of sutler")
NOT_FOUND: Final = Kind(404, "not-found", "There is no such thing")


class SutlerError(Exception):
    """Root of every error that the service raises on purpose; the message names the remedy and never a secret."""

    kind: ClassVar[Kind] = DEFECT
    exit_status: ClassVar[Exit | None] = None
    """What the command ends with; None where nobody at a terminal can bring it about."""
    retry_after_s: float | None = None
    """When it is worth to ask again."""

    @property
    def fields(self) -> Sequence[FieldProblem]:
        """Every field that is wrong, where it is fields."""
        return ()

    @property
    def detail(self) -> str:
        """What happened and what to do, on one line."""
        return str(self)

    @property
    def lines(self) -> Sequence[str]:
        """The same for a terminal, one line for each thing that is wrong."""
        return (f"error: {self}",)


class RemediedError(SutlerError):
    """A reason, and the remedy that goes with it."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{reason}: {remedy}")
