"""Vast.ai's search body: filters of operators per field, order, limit.

https://docs.vast.ai/api-reference/search/search-offers
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Row = Mapping[str, Any]
Test = Callable[[Row], bool]

USUAL_LIMIT: Final = 64
USUAL_STORAGE_GB: Final = 8.0
USUAL_FILTERS: Final[Mapping[str, Any]] = {
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
}
TYPES: Final = {"on-demand": "on_demand", "ondemand": "on_demand", "bid": "bid", "reserved": "reserved"}
_SETTINGS: Final = frozenset({"order", "limit", "type", "allocated_storage", "disable_bundling"})
_ALIASES: Final = {
    "dphtotal": "dph_total",
    "driver_version": "driver_vers",
    "ubuntu_version": "os_version",
    "target_reliability": "reliability",
}
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, given: value in given,
    "notin": lambda value, given: value not in given,
}


class BadSearchError(Exception):
    """What the search endpoint answers with 400 invalid_request."""


@dataclass(frozen=True, slots=True)
class ParsedSearch:
    """A search body, understood."""

    type: str
    limit: int
    storage_gb: float
    order: tuple[tuple[str, bool], ...]
    tests: tuple[Test, ...]

    def choose(self, rows: Iterable[Row]) -> list[Row]:
        """The rows that pass, in order, up to the limit."""
        found = [row for row in rows if all(test(row) for test in self.tests)]
        for field, is_descending in reversed(self.order):
            found.sort(key=lambda row: _sortable(row.get(field)), reverse=is_descending)
        return found[: self.limit]


def understood(body: object, known_fields: frozenset[str]) -> ParsedSearch:
    """Raises BadSearchError for what the endpoint refuses."""
    if not isinstance(body, dict):
        raise BadSearchError("the body must be a JSON object")
    kind = body.get("type", "on-demand")
    if not isinstance(kind, str) or kind not in TYPES:
        raise BadSearchError(f"{kind!r} is not a valid offer type")
    filters = {**USUAL_FILTERS, **{name: given for name, given in body.items() if name not in _SETTINGS}}
    return ParsedSearch(
        type=TYPES[kind],
        limit=int(_number(body, "limit", USUAL_LIMIT)),
        storage_gb=_number(body, "allocated_storage", USUAL_STORAGE_GB),
        order=tuple(_ordering(item) for item in _list(body.get("order", [["score", "desc"]]))),
        tests=tuple(test for name, given in filters.items() for test in _tests(name, given, known_fields)),
    )


def _tests(name: str, given: object, known_fields: frozenset[str]) -> Iterable[Test]:
    read = _reader(name, known_fields)
    if not isinstance(given, dict):
        raise BadSearchError(f"{given!r} is not a valid search op")
    for op, wanted in given.items():
        if op not in _OPERATORS or (op in {"in", "notin"} and not isinstance(wanted, list)):
            raise BadSearchError(f"{op} is not a valid search op")
        yield _test(read, _OPERATORS[op], wanted)


def _test(read: Callable[[Row], Any], compare: Callable[[Any, Any], bool], wanted: object) -> Test:
    def passes(row: Row) -> bool:
        try:
            return compare(read(row), wanted)
        except TypeError:  # null, or text against a number: compares with nothing
            return False

    return passes


def _reader(name: str, known_fields: frozenset[str]) -> Callable[[Row], Any]:
    """Reads the field of a filter: some filters are no fields of the answer, or go by another name there."""
    virtual: Mapping[str, Callable[[Row], Any]] = {
        "verified": lambda row: row["verification"] == "verified",
        "datacenter": lambda row: row["hosting_type"] == 1,
        "geolocation": lambda row: row["geolocation"].rpartition(",")[2].strip(),
        "external": lambda row: bool(row["external"]),
        "gpu_ram_GB": lambda row: row["gpu_ram"] / 1000,
    }
    field = _ALIASES.get(name, name)
    if name in virtual:
        return virtual[name]
    if field not in known_fields:
        raise BadSearchError(f"{name!r} is not a valid search field")
    return lambda row: row.get(field)


def _ordering(item: object) -> tuple[str, bool]:
    if not isinstance(item, list) or len(item) != 2 or item[1] not in ("asc", "desc"):
        raise BadSearchError(f"{item!r} is not a valid order: [field, 'asc' or 'desc']")
    return _ALIASES.get(str(item[0]), str(item[0])), item[1] == "desc"


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise BadSearchError(f"{value!r} is not a valid order: a list of [field, 'asc' or 'desc']")
    return value


def _number(body: Mapping[str, Any], name: str, usual: float) -> float:
    value = body.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise BadSearchError(f"{value!r} is not a valid {name}")
    return value


def _sortable(value: Any) -> tuple[int, Any]:
    """Null and numbers before text, so that any two values compare."""
    return (1, value) if isinstance(value, str) else (0, value if isinstance(value, int | float) else -1.0)
