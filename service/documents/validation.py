"""From plain data to a checked document, with errors that people can act on.

Every error names the path of the field in the caller's document, the value found there and what to write instead.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sutler.service.documents.described import descriptions
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import PRINTABLE, Document
from sutler.service.documents.kinds import CALLED
from sutler.service.errors import FieldProblem, short_repr

D = TypeVar("D", bound=Document)
Location = Sequence[int | str]
WHOLE_DOCUMENT: Final = "(document)"
MOST_PROBLEMS: Final = 100  # chosen: nobody reads more at once, and a million take a minute and a gigabyte


def validate(kind: type[D], data: object) -> D:
    """Returns the checked document; raises DocumentError with every wrong field."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise DocumentError(field_problems(kind, data, error)) from None


def of_json(kind: type[D], data: object) -> D:
    """The same of what sutler wrote as JSON, whose arrays strict checks of Python's values would refuse as tuples."""
    try:
        return kind.model_validate_json(json.dumps(data))
    except ValidationError as error:
        raise DocumentError(field_problems(kind, data, error)) from None


def field_problems(kind: type[Document], data: object, error: ValidationError) -> list[FieldProblem]:
    """Lists one problem per wrong field, in the order found, without those that only follow from others: the first
    MOST_PROBLEMS, and how many more there are.

    Of a document that is another one altogether, that is the only problem.
    """
    other = _another_document(kind, data)
    if other is not None:
        return [other]
    problems: dict[FieldProblem, None] = {}
    for number, detail in enumerate(error.errors(include_url=False)):
        if len(problems) >= MOST_PROBLEMS:
            more = f"{error.error_count() - number} more fields are wrong: correct those that are named first"
            return [*problems, FieldProblem(WHOLE_DOCUMENT, None, more)]
        problems |= dict.fromkeys(_problems_of(kind, data, detail))
    return list(problems)


def _another_document(kind: type[Document], data: object) -> FieldProblem | None:
    if not isinstance(data, Mapping):
        return None
    field, given = kind.model_fields.get("schema_"), data.get("schema")
    wanted = "" if field is None else str(next(iter(get_args(field.annotation)), ""))
    if isinstance(given, str) and given in CALLED and given != wanted:
        called, about = CALLED[given]
        return FieldProblem("schema", short_repr(given), f"is {called}, which is not what is wanted here: {about}")
    if wanted in CALLED and given is None and {"models", "objective"} <= data.keys():
        called, about = CALLED[wanted]
        return FieldProblem(
            "schema", None, f"is missing: this looks like a problem where {called} is wanted; {about}"
        )
    return None


def _problems_of(kind: type[Document], data: object, detail: ErrorDetails) -> list[FieldProblem]:
    location = _real_location(data, detail["loc"], is_missing=detail["type"] == "missing")
    path = _path(location)
    context = detail.get("ctx", {})
    if detail["type"] == "sutler_rules":
        return [FieldProblem(_joined(path, p.field), p.value, p.remedy) for p in context["problems"]]
    if detail["type"] == "too_short" and _still_long_enough(data, location, context["min_length"]):
        return []
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return [_wrong_tag(kind, path, detail)]
    shown = None if detail["type"] == "missing" else short_repr(detail["input"])
    return [FieldProblem(path, shown, _remedy(kind, detail))]


def _wrong_tag(kind: type[Document], path: str, detail: ErrorDetails) -> FieldProblem:
    context, given = detail.get("ctx", {}), detail["input"]
    key = str(context.get("discriminator", "kind")).strip("'")
    tag = given.get(key) if isinstance(given, Mapping) else None
    owners = [owner for owner in _owners(kind, [*detail["loc"], key]) if key in owner.model_fields]
    known = [str(tag) for owner in owners for tag in _tags(owner)]
    remedy = f"must be one of {', '.join(map(repr, known))}{_meant(tag, known)}"
    return FieldProblem(_joined(path, key), None if tag is None else short_repr(tag), remedy)


def _meant(given: object, known: Sequence[str]) -> str:
    close = get_close_matches(str(given).lower(), known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _real_location(data: object, location: Location, *, is_missing: bool) -> list[int | str]:
    """The location without what is not in the data, such as the tags of unions; but a missing field is named."""
    real: list[int | str] = []
    here: Any = data
    for position, part in enumerate(location):
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        elif isinstance(here, Mapping) and isinstance(part, str) and part.isdigit() and int(part) in here:
            here = here[int(part)]
        elif isinstance(here, Sequence) and not isinstance(here, str) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif not is_missing or position < len(location) - 1:
            continue
        real.append(part)
    return real


def _still_long_enough(data: object, location: Location, length: int) -> bool:
    """Whether a list only counts as too short because its entries are wrong, of which their own errors say enough."""
    here: Any = data
    for part in location:
        here = here[part]
    return isinstance(here, Sequence | Mapping) and len(here) >= length


def _path(location: Location) -> str:
    parts = []
    for part in location:
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif re.fullmatch(r"[\w-]{1,80}", part, re.ASCII):
            parts.append(f".{part}")
        else:
            parts.append(f"[{json.dumps(part[:80])}]")
    return "".join(parts).removeprefix(".") or WHOLE_DOCUMENT


def _joined(path: str, field: str) -> str:
    return field if path == WHOLE_DOCUMENT else f"{path}.{field}"


def _remedy(kind: type[Document], detail: ErrorDetails) -> str:
    rule, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    if rule.startswith("datetime"):
        rule = "sutler_time"
    if rule == "missing":
        remedy = _missing(kind, detail["loc"])
    elif rule == "extra_forbidden":
        remedy = _unknown_key(kind, detail["loc"])
    elif rule in _BOUNDS:
        word, key = _BOUNDS[rule]
        remedy = f"must be {word} {context[key]:g}"
    elif rule in ("float_type", "int_type", "int_from_float"):
        remedy = _not_a_number(rule, given, detail["loc"])
    elif rule == "string_type":
        remedy = "must be text; put it in quotes" if isinstance(given, int | float) else "must be text"
    elif rule == "literal_error":
        remedy = f"must be {context['expected']}{_meant(given, re.findall(QUOTED, context['expected']))}"
        remedy += "; spot is read as interruptible" if "'interruptible'" in context["expected"] else ""
    elif rule == "string_pattern_mismatch" and context["pattern"] != PRINTABLE:
        remedy = f"must match {context['pattern']}"
    elif rule in ("too_long", "string_too_long"):
        remedy = f"is too long: at most {context['max_length']} are allowed"
    else:
        remedy = _REMEDIES.get(rule, detail["msg"][:1].lower() + detail["msg"][1:])
    return remedy


QUOTED: Final = r"'([^']*)'"
AMOUNT: Final = r"(\$?) *([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?) *([^0-9\s.]*(?:/[a-zA-Z]+)?)"
SECONDS: Final[Mapping[str, float]] = {"ms": 1e-3, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
UNITS: Final[Mapping[str, str]] = {
    "_usd_per_hour": "USD per hour",
    "_rps": "requests per second",
    "_gb_per_s": "10^9 bytes per second",
    "_gb": "10^9 bytes",
    "_watts": "watts",
    "_fraction": "a fraction of 1",
    "_tokens": "tokens",
    "_s": "seconds",
}
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}

_REMEDIES: Final[Mapping[str, str]] = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to values",
    "finite_number": "must be a finite number",
    "invalid_key": "is not text: put the key in quotes",
    "model_attributes_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "string_pattern_mismatch": "contains control characters: remove them",
    "string_too_short": "must not be empty",
    "string_unicode": "is not valid Unicode text",
    "sutler_time": "must be a time such as 2026-11-20T12:00:00Z",
    "timezone_aware": "needs a time zone, such as the Z in 2026-11-20T12:00:00Z",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}


def _not_a_number(kind: str, given: object, location: Location) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        return "is too large"
    whole = "a whole number" if kind.startswith("int") else "a number"
    amount = re.fullmatch(AMOUNT, given.strip()) if isinstance(given, str) else None
    if amount is None:
        return f"must be {whole}{', not text' if isinstance(given, str) else ''}"
    name = next((part for part in reversed(location) if isinstance(part, str)), "")
    return f"must be {_as_a_number(amount[1], amount[2], amount[3].lower(), name, whole)}"


def _as_a_number(sign: str, figure: str, unit: str, name: str, whole: str) -> str:
    """Units are in the names of fields: of `50ms` in a field of seconds, it is said what to write."""
    if not unit and not sign:
        return f"{whole}, not text: remove the quotes"
    if unit in SECONDS and name.endswith("_s"):
        return f"a number of seconds, without a unit: write {float(figure) * SECONDS[unit]:g}"
    if unit == "%" and name.endswith("_fraction"):
        return f"a fraction of 1: write {float(figure) / 100:g}"
    return f"{whole}, in the unit that the name of the field says: write {figure} if that is {_unit_of(name)}"


def _unit_of(name: str) -> str:
    return next((words for ending, words in UNITS.items() if name.endswith(ending)), "it")


def _missing(kind: type[Document], location: Location) -> str:
    for owner in _owners(kind, location):
        for name, words in descriptions(owner).items():
            if (owner.model_fields[name].alias or name) == location[-1]:
                return f"is missing: {_first_sentence(words)}"
    return "is missing"


def _first_sentence(text: str) -> str:
    return text.split(". ", maxsplit=1)[0].rstrip(".")


def _unknown_key(kind: type[Document], location: Location) -> str:
    known = sorted(
        {field.alias or name for owner in _owners(kind, location) for name, field in owner.model_fields.items()}
    )
    for position, tag in enumerate(location[:-1]):
        others = _owners(kind, [*location[:position], *location[position + 1 :]])
        if any(tag in _tags(owner) for owner in others if "kind" in owner.model_fields) and any(
            location[-1] in owner.model_fields for owner in others
        ):
            return f"does not go with kind: {tag}: leave it out (`--set` with null takes it away)"
    close = get_close_matches(str(location[-1]), known, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown key{hint}; known here: {', '.join(known)}"


def _owners(kind: type[Document], location: Location) -> list[type[Document]]:
    """The document types that the last part of a location can be a field of."""
    owners: list[type[Document]] = [kind]
    for part in location[:-1]:
        tagged = [owner for owner in owners if "kind" in owner.model_fields and part in _tags(owner)]
        fields = [f for owner in owners for name, f in owner.model_fields.items() if (f.alias or name) == part]
        owners = tagged or list(_documents_in(f.annotation for f in fields)) or owners
    return owners


def _tags(owner: type[Document]) -> tuple[object, ...]:
    return get_args(owner.model_fields["kind"].annotation)


def _documents_in(annotations: Iterable[Any]) -> Iterable[type[Document]]:
    for annotation in annotations:
        if isinstance(annotation, type) and issubclass(annotation, Document):
            yield annotation
        else:
            yield from _documents_in(get_args(annotation))
