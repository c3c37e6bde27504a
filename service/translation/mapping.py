"""From a document to a record of the solver and back: fields of the same name, each in the type that the other has.

Whoever maps states the fields that differ; whatever is added under one name on both sides is carried over by itself.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from sutler.service.documents.fields import finite

T = TypeVar("T")
Converter = Callable[[Any], Any]


def mapped(kind: type[T], source: Any, /, **own: object) -> T:
    """A `kind` with the fields of `source` that it has too, and with `own`, which win.

    Fields that are documents or records are mapped in turn, so are tuples of them. A mapping stands for pairs: it
    becomes a tuple of records with two fields, or such a tuple a dictionary. Numbers that are not finite become None.
    """
    make: Any = kind
    as_they_are, converted = _converters(make, source.__class__)
    values = {name: getattr(source, name) for name in as_they_are}
    for name, convert in converted:
        if name not in own:
            values[name] = convert(getattr(source, name))
    found: T = make(**(values | own))
    return found


@cache
def _converters(kind: Any, source: Any) -> tuple[tuple[str, ...], tuple[tuple[str, Converter], ...]]:
    """Fields of the same name: those that are carried over as they are, and the others."""
    known = _types(source)
    each = [(name, _converter(hint)) for name, hint in _types(kind).items() if name in known]
    as_they_are = tuple(name for name, convert in each if convert is _as_it_is)
    return as_they_are, tuple((name, convert) for name, convert in each if convert is not _as_it_is)


@cache
def _types(kind: Any) -> dict[str, Any]:
    """The types of all fields, by name."""
    if issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _converter(hint: Any) -> Converter:
    """What makes a value one of this type."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _converter(parts[0])
    if hint is float:
        return finite
    if NoneType in parts:
        return _or_none(_converter(parts[0]))
    if origin is tuple:
        return partial(_tuple_of, parts[0])
    if origin in (dict, Mapping):
        return lambda value: dict(map(_pair, value.items() if isinstance(value, Mapping) else value))
    return partial(_record, hint) if _is_record(hint) else _as_it_is


def _or_none(convert: Converter) -> Converter:
    if convert in (finite, _as_it_is):  # which None passes through
        return convert
    return lambda value: None if value is None else convert(value)


def _as_it_is(value: Any) -> Any:
    return value


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, BaseModel))


def _record(kind: Any, value: Any) -> Any:
    return kind(**dict(zip(_types(kind), value, strict=True))) if isinstance(value, tuple) else mapped(kind, value)


def _tuple_of(item: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    pairs = values.items() if isinstance(values, Mapping) else values
    if _is_record(item):
        return tuple(_record(item, value) for value in pairs)
    return tuple(map(_pair, pairs)) if get_origin(item) is tuple else tuple(pairs)


def _pair(value: Any) -> tuple[Any, ...]:
    """A tuple as it is, or the fields of a record."""
    return value if isinstance(value, tuple) else tuple(getattr(value, name) for name in _types(value.__class__))
