"""A YAML loader for untrusted text: YAML 1.2 core types only, bounded size, no duplicate keys.

PyYAML's own loaders read YAML 1.1 (`on` is true, `1:30` is 90), drop duplicate keys and share aliased nodes
without counting them. Here PyYAML parses and composes; the plain data is built from its nodes below.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from sutler.service.errors import short_repr

MOST_NODES: Final = 1_000_000  # with aliases written out; a market of 20,000 offers has fewer
MOST_LEVELS: Final = 30  # chosen: several times what our documents have, well before Python's own limit

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = _TAG + "merge"
_MAPPING: Final = _TAG + "map"
_SEQUENCE: Final = _TAG + "seq"


class UnboundedYamlError(ValueError):
    """A document that grows without bound, or contains itself."""


def load_yaml(text: str) -> object:
    """Plain data of the one document in the text.

    Raises yaml.YAMLError for bad syntax, unknown tags and duplicate keys, UnboundedYamlError for alias bombs,
    ValueError for numbers that Python refuses, RecursionError for deep nesting.
    """
    composer = _Composer(text)
    try:
        root = composer.get_single_node()
    finally:
        composer.dispose()
    if root is None:
        return None
    _check_growth(root)
    return _plain(root)


class _PythonParser(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's own parser, for where it was built without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


_Parser: Any = yaml.cyaml.CParser if yaml.__with_libyaml__ else _PythonParser  # type: ignore[attr-defined]


class _Composer(yaml.composer.Composer, _Parser, yaml.resolver.BaseResolver):  # type: ignore[misc]
    """Nodes with the tags of the YAML 1.2 core schema (https://yaml.org/spec/1.2.2/, section 10.3).

    Events may come from C; nodes are composed in Python, where deep nesting is a RecursionError: composed in C,
    it exhausts the stack of the process.
    """

    def __init__(self, text: str) -> None:
        _Parser.__init__(self, text)
        yaml.composer.Composer.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)


for _kind, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+0123456789."),
    ),
    ("merge", r"^<<$", ["<"]),
):
    _Composer.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), _first)


def _check_growth(root: yaml.Node) -> None:
    """Counts nodes as if every alias were written out, each shared node once; depth first, without recursion."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        children = _children(node)
        if is_done:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
            if sizes[id(node)] > MOST_NODES:
                raise UnboundedYamlError(f"has more than {MOST_NODES} values once its aliases are written out")
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            if len(open_nodes) > MOST_LEVELS:
                raise RecursionError
            if any(id(child) in open_nodes for child in children):
                raise UnboundedYamlError("contains itself: an alias stands inside its own anchor")
            stack.append((node, True))
            stack.extend((child, False) for child in children)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _plain(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode) and node.tag == _MAPPING:
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode) and node.tag == _SEQUENCE:
        return [_plain(child) for child in node.value]
    if isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS:
        return _SCALARS[node.tag](node.value)
    raise _refused(node, f"the tag {short_repr(node.tag)} is not allowed: write plain values")


def _mapping(node: yaml.MappingNode) -> dict[object, Any]:
    """Reads a mapping whose keys are scalars and differ; `<<` merges others, over which its own keys win."""
    own: dict[object, Any] = {}
    merged: dict[object, Any] = {}
    for key_node, value_node in node.value:
        if key_node.tag == _MERGE:
            for source in _merge_sources(value_node):
                merged = {**source, **merged}
            continue
        if not isinstance(key_node, yaml.ScalarNode):
            raise _refused(key_node, "a key must be plain text")
        key = _plain(key_node)
        if key in own:
            raise _refused(key_node, f"the key {short_repr(key)} stands twice in one mapping")
        own[key] = _plain(value_node)
    return {**merged, **own}


def _merge_sources(node: yaml.Node) -> Iterator[dict[object, Any]]:
    """The mappings behind `<<`, of which earlier ones win."""
    for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(source, yaml.MappingNode):
            raise _refused(source, "`<<` takes a mapping or a list of mappings")
        yield _plain(source)


def _refused(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _boolean(text: str) -> bool:
    return text.lower() == "true"


def _integer(text: str) -> int:
    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
    return int(text if base == 10 else text[2:], base)


def _real(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Final[dict[str, Callable[[str], object]]] = {
    _TAG + "str": str,
    _TAG + "null": lambda _: None,
    _TAG + "bool": _boolean,
    _TAG + "int": _integer,
    _TAG + "float": _real,
    _MERGE: str,
}
