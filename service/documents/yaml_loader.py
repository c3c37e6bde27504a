"""A YAML loader for untrusted text: YAML 1.2 core types only, bounded size, no duplicate keys.

PyYAML's own loaders read YAML 1.1 (`on` is true, `1:30` is 90), drop duplicate keys and share aliased nodes without
counting them; in Python they are slow, and in C deep nesting exhausts the stack of the process. Here libyaml parses,
and plain data is built from its events as they come: too much is refused before it is there.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from sutler.service.errors import short_repr

MOST_NODES: Final = 1_000_000  # with aliases written out; a market of 20,000 offers has fewer
SEPARATORS: Final = ",:[{\n"
MOST_KEYS: Final = 100_000  # chosen: of one mapping; none of ours has a hundredth of it
MOST_LEVELS: Final = 30  # chosen: several times what our documents have, well before Python's own limit

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
_TEXT: Final = _TAG + "str"


class UnboundedError(ValueError):
    """A document that is too large once it is read, or contains itself."""


def load_yaml(text: str) -> object:
    """Plain data of the one document in the text.

    Raises yaml.YAMLError for bad syntax, unknown tags and duplicate keys, UnboundedError for alias bombs,
    ValueError for numbers that Python refuses, RecursionError for deep nesting.
    """
    if sum(map(text.count, SEPARATORS)) > MOST_NODES:  # to build so much would take longer than to count it
        _check_size(text)
    building = _Building()
    for event in _events(text):
        building.take(event)
    return building.root


def _check_size(text: str) -> None:
    nodes = 0
    for event in _events(text):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > MOST_NODES:
            raise _too_many_nodes()


def _too_many_nodes() -> UnboundedError:
    return UnboundedError(f"has more than {MOST_NODES} values once its aliases are written out")


def check_keys(keys: int) -> None:
    """Raises UnboundedError where one mapping has too many keys: to tell of each that it is unknown takes long."""
    if keys > MOST_KEYS:
        raise UnboundedError(f"has more than {MOST_KEYS} keys in one mapping")


class _PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's own parser, for where it was built without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


_Parser: Any = yaml.cyaml.CParser if yaml.__with_libyaml__ else _PythonParser  # type: ignore[attr-defined]


def _events(text: str) -> Iterator[Any]:
    parser = _Parser(text)
    try:
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            yield event
    finally:
        parser.dispose()


@dataclass(slots=True)
class _Anchored:
    """What an alias stands for, with its size; None of `nodes`: it is not complete yet."""

    value: Any = None
    nodes: int | None = None
    levels: int = 0


@dataclass(slots=True)
class _Collection:
    """One that is being read: where it began, the nodes before it, and how deep it is so far."""

    begun: Any
    nodes_before: int
    anchored: _Anchored | None
    levels: int = 1


@dataclass(slots=True)
class _Sequence(_Collection):
    value: list[Any] = field(default_factory=list)

    def add(self, value: Any, event: Any) -> None:
        self.value.append(value)

    def done(self) -> list[Any]:
        return self.value


@dataclass(slots=True)
class _Mapping(_Collection):
    """Its keys are scalars and differ. `<<` merges others: own keys win over theirs, and earlier ones over later."""

    own: dict[object, Any] = field(default_factory=dict)
    merged: dict[object, Any] = field(default_factory=dict)
    key: object = None
    wants: str = "key"  # or the "value" of a key, or what is to be a "merged" one

    def add(self, value: Any, event: Any) -> None:
        if self.wants == "key":
            if value in self.own:
                raise _refused(event, f"the key {short_repr(value)} stands twice in one mapping")
            check_keys(len(self.own) + 1)
            self.key, self.wants = value, "value"
            return
        if self.wants == "value":
            self.own[self.key] = value
        else:
            for source in value if isinstance(value, list) else [value]:
                if not isinstance(source, dict):
                    raise _refused(event, "`<<` takes a mapping or a list of mappings")
                self.merged.update((key, source[key]) for key in source.keys() - self.merged.keys())
                check_keys(len(self.merged))
        self.wants = "key"

    def done(self) -> dict[object, Any]:
        return {**self.merged, **self.own} if self.merged else self.own


class _Building:
    """The value of a document from its events. `nodes` counts as if every alias were written out."""

    def __init__(self) -> None:
        self.root: Any = None
        self._nodes = self._documents = 0
        self._open: list[_Sequence | _Mapping] = []
        self._anchors: dict[str, _Anchored] = {}

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent:
            self._begin(event, _Mapping, _TAG + "map")
        elif kind is yaml.SequenceStartEvent:
            self._begin(event, _Sequence, _TAG + "seq")
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._end()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise _refused(event, "there is another document: write one")

    def _scalar(self, event: Any) -> None:
        self._count(1)
        tag = event.tag if event.tag not in (None, "!") else _implied(event)
        inside = self._open[-1] if self._open else None
        if tag == _MERGE and isinstance(inside, _Mapping) and inside.wants == "key":
            inside.wants = "merged"
            return
        if tag not in _SCALARS:
            raise _not_allowed(event, tag)
        value = _SCALARS[tag](event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, nodes=1)
        self._add(value, event, levels=0)

    def _begin(self, event: Any, kind: type[_Sequence] | type[_Mapping], tag: str) -> None:
        self._count(1)
        self._check_key(event)
        if event.tag not in (None, "!", tag):
            raise _not_allowed(event, event.tag)
        if len(self._open) == MOST_LEVELS:
            raise RecursionError
        anchored = None if event.anchor is None else _Anchored()
        if anchored is not None:
            self._anchors[event.anchor] = anchored
        self._open.append(kind(event, self._nodes - 1, anchored))

    def _end(self) -> None:
        ended = self._open.pop()
        value = ended.done()
        if ended.anchored is not None:
            ended.anchored.value, ended.anchored.levels = value, ended.levels
            ended.anchored.nodes = self._nodes - ended.nodes_before
        self._add(value, ended.begun, levels=ended.levels)

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _refused(event, f"found undefined alias {event.anchor[:80]!r}")
        if anchored.nodes is None:
            raise UnboundedError("contains itself: an alias stands inside its own anchor")
        self._count(anchored.nodes)
        if len(self._open) + anchored.levels > MOST_LEVELS:
            raise RecursionError
        if anchored.levels:
            self._check_key(event)
        self._add(_copied(anchored.value), event, levels=anchored.levels)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise _too_many_nodes()

    def _check_key(self, event: Any) -> None:
        inside = self._open[-1] if self._open else None
        if isinstance(inside, _Mapping) and inside.wants == "key":
            raise _refused(event, "a key must be plain text")

    def _add(self, value: Any, event: Any, *, levels: int) -> None:
        if not self._open:
            self.root = value
            return
        inside = self._open[-1]
        inside.levels = max(inside.levels, levels + 1)
        inside.add(value, event)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _refused(event: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _not_allowed(event: Any, tag: str) -> yaml.MarkedYAMLError:
    return _refused(event, f"the tag {short_repr(tag)} is not allowed: write plain values")


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Final[dict[str, Callable[[str], object]]] = {
    _TEXT: str,
    _TAG + "null": lambda _: None,
    _TAG + "bool": _boolean,
    _TAG + "int": _integer,
    _TAG + "float": _real,
    _MERGE: str,
}

_IMPLIED: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
"""By first characters, what plain scalars are in the core schema (https://yaml.org/spec/1.2.2/, section 10.3.2)."""
for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+0123456789."),
    ),
    ("merge", r"<<", ["<"]),
):
    for _character in _first:
        _IMPLIED.setdefault(_character, []).append((_TAG + _kind, re.compile(_pattern)))


def _implied(event: Any) -> str:
    if not event.implicit[0]:  # it is quoted
        return _TEXT
    text: str = event.value
    kinds = _IMPLIED.get(text[:1], ())
    return next((tag for tag, pattern in kinds if pattern.fullmatch(text)), _TEXT)
