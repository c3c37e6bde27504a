"""Reading what clouds send: tolerant of spelling, strict about meaning.

A number is a JSON number or a string that is exactly one, blanks around it aside; an id is text or a whole number; a
boolean may be spelled "true" or "false". Anything else is a RowError that names field and value, never a guess.
"""

import json
import math
import re
import reprlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from sutler.adapters.base import LONGEST_NAME, OFFER_LIMITS, UNPRINTABLE, PriceBand
from sutler.adapters.errors import Reason, RowError

Row = Mapping[str, Any]
T = TypeVar("T")

_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
LONGEST_NUMBER: Final = 400  # digits; chosen: the largest float has 309 of them, so nothing longer is a figure
CENTS_PER_USD: Final = 100.0
LARGEST_QUANTITY: Final = 1e9  # the market snapshot takes no larger one
LARGEST_CARD_ID: Final = 2**53  # whole numbers up to here survive every JSON reader
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def short(value: object) -> str:
    """A value as a message shows it."""
    return _SHORT.repr(value)


def integer_of_digits(digits: str) -> float:
    """For `json.loads(parse_int=)`: Python refuses integers of thousands of digits, which must cost no body."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else math.inf


def as_row(value: object) -> Row:
    """Raises RowError (bad_shape) for anything but an object."""
    if not isinstance(value, dict):
        raise RowError("bad_shape", f"{short(value)} is no object")
    return value


def inside(value: object, *names: str) -> Any:
    """What lies at this path of names, or None where it does not lead through objects."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def stated(found: T | None, name: str, reason: Reason = "bad_shape") -> T:
    """What a field says. Raises RowError where it says nothing."""
    if found is None:
        raise RowError(reason, f"{name}: is missing")
    return found


def number(row: Row, name: str) -> float | None:
    """The number in this field, or None where it is absent or null. Raises RowError (bad_number)."""
    value = row.get(name)
    return None if value is None else _finite(name, value)


def _finite(name: str, value: object) -> float:
    if type(value) is float and math.isfinite(value):
        return value  # nearly all figures: a poll reads tens of thousands
    try:
        found = float(value) if _is_number(value) else math.nan  # type: ignore[arg-type]
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise RowError("bad_number", f"{name}: {short(value)} is not a number")
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return len(value) < LONGEST_NUMBER and _JSON_NUMBER.fullmatch(value.strip()) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(row: Row, name: str) -> int | None:
    """A whole number, or None. Raises RowError (bad_number)."""
    found = number(row, name)
    if found is None:
        return None
    if found != int(found):
        raise RowError("bad_number", f"{name}: {short(row[name])} is not a whole number")
    return int(found)


def count(row: Row, name: str, *, most: int) -> int:
    """A whole number from 1 to `most`. Raises RowError: bad_shape where it is missing, else bad_number."""
    found = stated(whole(row, name), name)
    if not 1 <= found <= most:
        raise RowError("bad_number", f"{name}: {short(row[name])} is not from 1 to {most}")
    return found


def nonnegative(row: Row, name: str, *, most: float = LARGEST_QUANTITY) -> float | None:
    """A number from 0 to `most`, or None. Raises RowError (bad_number)."""
    found = number(row, name)
    if found is not None and not 0 <= found <= most:
        raise RowError("bad_number", f"{name}: {short(row[name])} is not from 0 to {most:g}")
    return found


def if_stated(row: object, name: str, figure: str, *, per: float = 1.0) -> float | None:
    """The figure of an offer that this field states, `per` of its unit, or None where it cannot be that figure.

    For what an offer can do without: "N/A", a negative number or one out of range costs no row.
    """
    value = inside(row, name)
    try:
        return None if value is None else within(figure, _finite(name, value) / per)
    except RowError:
        return None


def above_zero(row: object, name: str, figure: str, *, per: float = 1.0) -> float | None:
    """The same of a figure that nothing has 0 of: there, 0 says that it is not known."""
    return if_stated(row, name, figure, per=per) or None


def within(figure: str, value: float | None) -> float | None:
    """The value, or None where it is none or outside of what this figure of an offer can be."""
    least, most = OFFER_LIMITS[figure]
    return value if value is not None and least <= value <= most else None


def flag(row: object, name: str) -> bool | None:
    """True, False, or None where the cloud says neither."""
    value = inside(row, name)
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def instant(row: Row, name: str) -> datetime | None:
    """A time, in RFC 3339 with its zone or as seconds since 1970; None where there is none or no calendar has it.

    Raises RowError (bad_number) for anything else.
    """
    value = row.get(name)
    if value is None:
        return None
    if _is_number(value):
        return of_epoch(_finite(name, value))
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise RowError("bad_number", f"{name}: {short(value)} is no time with its zone")
    return found.astimezone(UTC)


def of_epoch(seconds: float) -> datetime | None:
    """The time so many seconds after 1970 began; None beyond the year 9999, as clouds write "never"."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def identifier(row: Row, name: str) -> str:
    """An id as text. Raises RowError (bad_shape) where there is none."""
    found = optional_identifier(row, name)
    if found is None:
        raise RowError("bad_shape", f"{name}: {short(row.get(name))} is no id")
    return found


def optional_identifier(row: object, name: str) -> str | None:
    """An id as text, or None where there is none or it cannot be one, be it in what is no row at all."""
    value = inside(row, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**100 else None
    return text(row, name)


def text(row: object, name: str) -> str | None:
    """Text without unprintable characters and outer blanks, cut to the longest name; None where nothing is left."""
    value = inside(row, name)
    if not isinstance(value, str):
        return None
    return UNPRINTABLE.sub("", value[: 4 * LONGEST_NAME]).strip()[:LONGEST_NAME].strip() or None


def whole_numbers(row: Row, name: str) -> tuple[int, ...] | None:
    """A list of distinct whole numbers from 0, sorted; None where it is absent, empty, too large or anything else."""
    value = row.get(name)
    if not isinstance(value, list) or not value:
        return None
    numbers = (item for item in value if isinstance(item, int) and not isinstance(item, bool))
    found = {item for item in numbers if 0 <= item <= LARGEST_CARD_ID}
    return tuple(sorted(found)) if len(found) == len(value) else None


def checked_price(usd_per_hour: float, *, gpus: int, band: PriceBand, name: str) -> float:
    """The price of a whole offer. Raises RowError outside the band per GPU-hour."""
    per_gpu = usd_per_hour / gpus
    shown = f"{name}: {usd_per_hour:g} USD per hour for {gpus} GPU{'s' if gpus > 1 else ''}"
    if usd_per_hour <= 0:
        raise RowError("price_nonpositive", shown)
    if per_gpu < band.least_usd_per_gpu_hour:
        raise RowError("price_too_low", f"{shown} is below {band.least_usd_per_gpu_hour:g} per GPU")
    if per_gpu > band.most_usd_per_gpu_hour:
        raise RowError("price_too_high", f"{shown} is above {band.most_usd_per_gpu_hour:g} per GPU")
    return usd_per_hour


def raw_json(value: object) -> str:
    """A row as it came, in ASCII, so that any database can hold it; a number too large for JSON becomes text."""
    try:
        try:
            return _dumped(value)
        except ValueError:
            return _dumped(_finite_throughout(value))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(short(value))


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)


def _finite_throughout(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite_throughout(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite_throughout(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
