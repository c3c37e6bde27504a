"""What can be wrong with the documents a caller hands in, split by what the caller can do about it.

SutlerError
├── DocumentError       a document cannot be read or a field is wrong: correct the named fields
├── NoMarketDataError   nothing to plan with: poll a market, name a snapshot or loosen the filter
└── OutputError         the plan cannot be written where the caller asked
"""

from collections.abc import Iterable, Sequence

from sutler.service.errors import Exit, FieldProblem, Kind, RemediedError, SutlerError, short_repr


class DocumentError(SutlerError):
    """A document that no plan can be made from; `problems` names every field found wrong."""

    kind = Kind(422, "invalid-document", "Some fields are wrong")
    exit_status = Exit.BAD_INPUT

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, field: str, remedy: str, **given: object) -> "DocumentError":
        """Returns the error of one wrong field; pass `value=` where there is one to show."""
        value = short_repr(given["value"]) if "value" in given else None
        return cls([FieldProblem(field, value, remedy)])

    @property
    def fields(self) -> Sequence[FieldProblem]:
        return self.problems

    @property
    def detail(self) -> str:
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return f"{self.problems[0]}{more}" if self.problems else str(self)

    @property
    def lines(self) -> Sequence[str]:
        return tuple(f"error: {problem}" for problem in self.problems)


class NoMarketDataError(RemediedError):
    """The market holds no offers to plan with; `is_stale`: all that it holds is too old."""

    kind = Kind(503, "no-market-data", "There is nothing to plan with")
    exit_status = Exit.NO_MARKET_DATA

    def __init__(self, reason: str, remedy: str, *, is_stale: bool = False) -> None:
        super().__init__(reason, remedy)
        self.is_stale = is_stale

    @property
    def lines(self) -> Sequence[str]:
        return (f"no market data: {self}",)


class OutputError(RemediedError):
    """The result cannot be written to the path that was asked for."""

    exit_status = Exit.BAD_INPUT

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        super().__init__(f"{path}: {reason}", remedy)
