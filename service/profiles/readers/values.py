"""The types of the values that benchmark files hold, and the base of all the models that read them.

Every reader's model names only what sutler uses, tolerates whatever else is there, and takes what is missing or
null for unknown. What is there but wrong is an error that names it. Limits lie far above anything real.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Document, Name
from sutler.solver.units import MILLISECONDS_PER_SECOND

EARLIEST_YEAR: Final = 2000  # what is before comes of clocks that were never set
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Stated(Document):
    """What a file of another program states: strict about the types of what is read, blind to the rest."""

    model_config = ConfigDict(extra="ignore", validate_default=False)


def named(*names: str) -> Any:
    """An optional field under any of these names."""
    return Field(default=None, validation_alias=AliasChoices(*names))


def per_request(total: float | None, completed: int | None) -> float | None:
    """The mean over the completed requests; None where there were none."""
    return total / completed if total is not None and completed else None


def seconds_of_ms(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / MILLISECONDS_PER_SECOND


def at_utc(epoch_s: float | None) -> datetime | None:
    """The time, or None for the zeros and minus ones that programs write where they know none."""
    return datetime.fromtimestamp(epoch_s, UTC) if epoch_s is not None and epoch_s > 0 else None


def only_one(field: str, names: tuple[str, ...]) -> str | None:
    """The one name there is. Raises DocumentError for several: their means belong to none of them."""
    if len(set(names)) > 1:
        raise DocumentError.of(field, "benchmark one at a time: the file states means over all of them", value=names)
    return names[0] if names else None


def _number_of_text(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not _NUMBER.fullmatch(value.strip()):
        raise PydanticCustomError("sutler_number", "must be a number")
    return float(value)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object) -> object:
    plain = str(value) if type(value) in (int, float) else value
    return plain.strip() if isinstance(plain, str) else plain


def _time(value: object) -> object:
    """ISO 8601; a time without a zone is taken as UTC, for none of these programs writes one."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        if not text or text.isdigit():
            raise ValueError
        time = datetime.fromisoformat(text)
        if time.year < EARLIEST_YEAR:
            raise ValueError
    except ValueError:
        raise PydanticCustomError("sutler_time", "must be a time") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _mapping_or_nothing(value: object) -> object:
    return value if isinstance(value, dict) else None


Measured = Annotated[float, Field(ge=0, le=1e12)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Epoch = Annotated[float, Field(ge=-1, le=1e11)]
Counted = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_whole)]
Degree = Annotated[int, Field(ge=1, le=10**6), BeforeValidator(_whole)]
Label = Annotated[Name, BeforeValidator(_text)]
Time = Annotated[datetime, BeforeValidator(_time)]

MeasuredText = Annotated[Measured, BeforeValidator(_number_of_text)]
PositiveText = Annotated[Positive, BeforeValidator(_number_of_text)]
CountedText = Annotated[Counted, BeforeValidator(_number_of_text)]
DegreeText = Annotated[Degree, BeforeValidator(_number_of_text)]

# Where versions of a program put now text, now an object: only the object is of interest.
WhereMapping = BeforeValidator(_mapping_or_nothing)
