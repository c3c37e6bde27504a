"""The field types that all documents share: strict base, names, money, rates, fractions, times.

Every number is finite and has an upper limit far above anything real, so that a slip of the keyboard is an error
here and not an overflow later. Units are in the field names; the descriptions go into the JSON Schemas.
"""

import math
from datetime import datetime
from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.types import AwareDatetime
from pydantic_core import PydanticCustomError

from sutler.service.documents.described import Described
from sutler.service.errors import FieldProblem

# No control characters and no invisible direction marks: names end up in terminals, logs and file names.
PRINTABLE: Final = r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+$"
PRINTABLE_OR_NONE: Final = PRINTABLE.removesuffix("+$") + "*$"  # as a form sends a field that nobody has filled in


class Document(Described):
    """Base of all documents: nothing is converted, nothing unknown is accepted, nothing changes later."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
    )


def _number_as_name(value: object) -> object:
    """`gpu: 4090` in YAML is a number; the name it spells is not in doubt."""
    return str(value) if type(value) is int else value


def _time_of_text(value: object) -> object:
    """Only RFC 3339 text is a time: a bare number could be seconds or milliseconds."""
    if not isinstance(value, str | datetime) or (isinstance(value, str) and value.strip().isdigit()):
        raise PydanticCustomError("sutler_time", "must be a time such as 2026-11-20T12:00:00Z")
    return value


Name = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]
GpuName = Annotated[Name, BeforeValidator(_number_as_name, json_schema_input_type=str)]
FilePath = Annotated[str, Field(min_length=1, max_length=4096, pattern=PRINTABLE)]
Timestamp = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_time_of_text, json_schema_input_type=str)]

Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[float, Field(ge=1, le=1e7)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]
Rate = Annotated[float, Field(ge=0, le=1e7)]
PositiveRate = Annotated[float, Field(gt=0, le=1e7)]
Requests = Annotated[float, Field(gt=0, le=1e12)]
UsdPerHour = Annotated[float, Field(ge=0, le=1e7)]  # what is owned, prepaid or committed costs nothing
Bandwidth = Annotated[float, Field(ge=0, le=1e6)]
PositiveGigabytes = Annotated[float, Field(gt=0, le=1e6)]
Watts = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


def reject(problems: list[FieldProblem]) -> None:
    """Raises, inside a validator, the rules that several fields break together; no problems, no error."""
    if problems:
        text = "; ".join(str(problem) for problem in problems)
        raise PydanticCustomError("sutler_rules", "{text}", {"text": text, "problems": tuple(problems)})


def document_json(document: Document) -> str:
    """The document as indented JSON, ended by a line feed."""
    return document.model_dump_json(by_alias=True, indent=2) + "\n"


def finite(value: float | None) -> float | None:
    """JSON has no infinity and no NaN: what says nothing is null."""
    return value if value is not None and math.isfinite(value) else None
