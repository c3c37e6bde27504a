"""How the lengths of prompts, answers and chains are written in an application file.

Used by application_schema.py; lengths.py turns each into the solver's distribution.
"""

from itertools import pairwise
from typing import Annotated, Any, Final, Self

from pydantic import Discriminator, Field, Tag, model_validator

from sutler.service.documents.fields import PRINTABLE, Document, FilePath, Fraction, reject
from sutler.service.errors import FieldProblem, short_repr

MOST_TOKENS: Final = 10_000_000
MOST_ENTRIES: Final = 1_000_000
FORMS: Final = ("uniform", "lognormal", "empirical", "quantiles", "file")

WholeTokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Listed = Annotated[tuple[WholeTokens, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]
Column = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]


class UniformRange(Document):
    """Whole numbers from `low` to `high`, each as often."""

    low: WholeTokens
    """Smallest."""
    high: WholeTokens
    """Largest."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        reject(_above(self.high, self.low))
        return self


class LognormalShape(Document):
    """A lognormal distribution by its own mean and standard deviation, then cut to [low, high]."""

    mean: Annotated[float, Field(ge=1, le=MOST_TOKENS)]
    """Mean of the distribution itself, before it is cut; not of its logarithm."""
    standard_deviation: Annotated[float, Field(ge=0, le=MOST_TOKENS)]
    """Standard deviation of the distribution itself, before it is cut."""
    low: WholeTokens = 1
    """What is smaller becomes this."""
    high: WholeTokens | None = None
    """What is larger becomes this; unset: nothing is cut."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        reject([] if self.high is None else _above(self.high, self.low))
        return self


class EmpiricalCounts(Document):
    """Lengths that were seen."""

    tokens: Listed
    """The lengths, in any order."""
    weights: (
        Annotated[
            tuple[Annotated[float, Field(ge=0, le=1e12)], ...],
            Field(strict=False, min_length=1, max_length=MOST_ENTRIES),
        ]
        | None
    ) = None
    """How often each was seen; unset: all as often."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights is not None:
            reject([*_same_length("weights", self.weights, "tokens", self.tokens), *_some_weight(self.weights)])
        return self


class QuantileCurve(Document):
    """Quantiles, with straight lines between them."""

    fractions: Annotated[tuple[Fraction, ...], Field(strict=False, min_length=2, max_length=10_000)]
    """Shares of the lengths, ascending from 0 to 1."""
    tokens: Annotated[tuple[WholeTokens, ...], Field(strict=False, min_length=2, max_length=10_000)]
    """The length that such a share does not exceed, ascending; that of 0 is the smallest, that of 1 the largest."""

    @model_validator(mode="after")
    def _check_curve(self) -> Self:
        reject([*_same_length("fractions", self.fractions, "tokens", self.tokens), *_curve_rules(self)])
        return self


class LengthsColumn(Document):
    """A column of whole numbers in a CSV file with a header."""

    path: FilePath
    """Path of the CSV, relative to the application file (command line only)."""
    column: Column
    """Name of the column, such as GeneratedTokens."""


class UniformLengths(Document):
    """Evenly between two numbers."""

    uniform: UniformRange
    """From where to where."""


class LognormalLengths(Document):
    """Lognormally distributed."""

    lognormal: LognormalShape
    """Mean, standard deviation and limits."""


class EmpiricalLengths(Document):
    """As they were seen."""

    empirical: EmpiricalCounts
    """What was seen."""


class QuantileLengths(Document):
    """By quantiles."""

    quantiles: QuantileCurve
    """Shares and lengths."""


class FileLengths(Document):
    """As they stand in a file."""

    file: LengthsColumn
    """File and column."""


def _form(value: Any) -> str | None:
    """A tag is no key of the document, or errors would take it for a part of their field's path."""
    if type(value) is int:
        return "whole lengths"
    given = type(value).model_fields if isinstance(value, Document) else value
    if not isinstance(given, dict):
        return None
    forms = [form for form in FORMS if form in given]
    return f"{forms[0]} lengths" if len(forms) == 1 else None


LengthsDocument = Annotated[
    Annotated[WholeTokens, Tag("whole lengths")]
    | Annotated[UniformLengths, Tag("uniform lengths")]
    | Annotated[LognormalLengths, Tag("lognormal lengths")]
    | Annotated[EmpiricalLengths, Tag("empirical lengths")]
    | Annotated[QuantileLengths, Tag("quantiles lengths")]
    | Annotated[FileLengths, Tag("file lengths")],
    Discriminator(
        _form,
        custom_error_type="sutler_choice",
        custom_error_message="must be a whole number, or one of {uniform: ...}, {lognormal: ...}, {empirical: ...}, "
        "{quantiles: ...} or {file: ...}",
    ),
]


def _above(high: int, low: int) -> list[FieldProblem]:
    return [] if low <= high else [FieldProblem("high", str(high), f"must be at least low ({low})")]


def _same_length(field: str, given: tuple[float, ...], other: str, like: tuple[int, ...]) -> list[FieldProblem]:
    if len(given) == len(like):
        return []
    remedy = f"has {len(given)} entries where {other} has {len(like)}: give one for each"
    return [FieldProblem(field, short_repr(list(given)), remedy)]


def _some_weight(weights: tuple[float, ...]) -> list[FieldProblem]:
    if any(weights):
        return []
    return [FieldProblem("weights", short_repr(list(weights)), "are all 0: one must be above")]


def _curve_rules(curve: QuantileCurve) -> list[FieldProblem]:
    problems = []
    fractions, tokens = curve.fractions, curve.tokens
    if fractions[0] != 0 or fractions[-1] != 1 or any(b <= a for a, b in pairwise(fractions)):
        problems.append(FieldProblem("fractions", short_repr(list(fractions)), "must ascend from 0 to 1"))
    if any(b < a for a, b in pairwise(tokens)):
        problems.append(FieldProblem("tokens", short_repr(list(tokens)), "must ascend"))
    return problems
