"""Enough of GraphQL for a price query: fields, aliases, arguments, variables, __typename; no fragments.

Objects are mappings of fields; a field that takes arguments is a function of them. https://spec.graphql.org/
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""[\s,]+|\#[^\n]*|(?P<token>[{}()\[\]:!=$]|"(?:[^"\\\n]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?|[_A-Za-z][_0-9A-Za-z]*)"""
)
_DEEPEST: Final = 12  # chosen: no query of these types is half as deep

Fields = Mapping[str, Any]


class QueryError(Exception):
    """A query that does not fit the schema, or is none."""


@dataclass(slots=True)
class QueryField:
    """One field asked for: its name, the name it goes by in the answer, its arguments, and what of it is wanted."""

    name: str
    alias: str
    arguments: dict[str, Any] = field(default_factory=dict)
    inner: list["QueryField"] = field(default_factory=list)


def execute(query: object, variables: object, root: Fields) -> dict[str, Any]:
    """The `data` of an answer. Raises QueryError."""
    if not isinstance(query, str):
        raise QueryError("Must provide query string.")
    given = variables if isinstance(variables, dict) else {}
    try:
        return _selected(_Reader(query, given).document(), root, "Query")
    except (RecursionError, ValueError):  # lists of lists without end, integers of thousands of digits
        raise QueryError("Syntax Error: the query is too deep or too long.") from None


def _selected(wanted: list[QueryField], fields: Fields, kind: str) -> dict[str, Any]:
    return {each.alias: _value(each, fields, kind) for each in wanted}


def _value(wanted: QueryField, fields: Fields, kind: str) -> Any:
    if wanted.name == "__typename":
        return fields.get("__typename", kind)
    if wanted.name not in fields:
        raise QueryError(f'Cannot query field "{wanted.name}" on type "{fields.get("__typename", kind)}".')
    found = fields[wanted.name]
    if callable(found):
        found = found(wanted.arguments)
    elif wanted.arguments:
        raise QueryError(f'Unknown argument "{next(iter(wanted.arguments))}" on field "{wanted.name}".')
    if isinstance(found, list):
        return [_shown(wanted, item) for item in found]
    return _shown(wanted, found)


def _shown(wanted: QueryField, found: Any) -> Any:
    if not isinstance(found, Mapping):
        return found
    if not wanted.inner:
        raise QueryError(f'Field "{wanted.name}" must have a selection of subfields.')
    return _selected(wanted.inner, found, "Object")


class _Reader:
    """Reads a query token by token."""

    def __init__(self, query: str, variables: Mapping[str, Any]) -> None:
        self._tokens = list(_tokens(query))
        self._variables = dict(variables)
        self._at = 0

    def document(self) -> list[QueryField]:
        if self._peek() == "query":
            self._next()
            if self._peek() not in {"{", "("}:
                self._next()
            if self._peek() == "(":
                self._declarations()
        found = self._selections(0)
        if self._peek() is not None:
            raise QueryError(f"Syntax Error: Unexpected {self._peek()!r}.")
        return found

    def _declarations(self) -> None:
        """`($count: Int = 1, ...)`: only the defaults matter here."""
        self._expect("(")
        while self._peek() != ")":
            self._expect("$")
            name = self._next()
            self._expect(":")
            while self._peek() in {"[", "]", "!"} or (self._peek() or "").isidentifier():
                self._next()
            if self._peek() == "=":
                self._next()
                self._variables.setdefault(name, self._literal())
        self._expect(")")

    def _selections(self, depth: int) -> list[QueryField]:
        if depth > _DEEPEST:
            raise QueryError("Syntax Error: the query is nested too deeply.")
        self._expect("{")
        found = []
        while self._peek() != "}":
            found.append(self._selection(depth))
        self._expect("}")
        return found

    def _selection(self, depth: int) -> QueryField:
        name = alias = self._name()
        if self._peek() == ":":
            self._next()
            name = self._name()
        wanted = QueryField(name, alias)
        if self._peek() == "(":
            wanted.arguments = self._pairs("(", ")")
        if self._peek() == "{":
            wanted.inner = self._selections(depth + 1)
        return wanted

    def _pairs(self, opening: str, closing: str) -> dict[str, Any]:
        self._expect(opening)
        found = {}
        while self._peek() != closing:
            name = self._name()
            self._expect(":")
            found[name] = self._literal()
        self._expect(closing)
        return found

    def _literal(self) -> Any:
        token = self._peek()
        if token == "{":
            return self._pairs("{", "}")
        if token == "[":
            return self._list()
        self._next()
        if token == "$":
            return self._variables.get(self._name())
        if token is not None and token.startswith('"'):
            return token[1:-1].replace('\\"', '"')
        if token in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[token]
        return _number_or_word(token)

    def _list(self) -> list[Any]:
        self._expect("[")
        found = []
        while self._peek() != "]":
            found.append(self._literal())
        self._expect("]")
        return found

    def _name(self) -> str:
        token = self._next()
        if not token.isidentifier():
            raise QueryError(f"Syntax Error: Expected Name, found {token!r}.")
        return token

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise QueryError("Syntax Error: Unexpected <EOF>.")
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise QueryError(f"Syntax Error: Expected {token!r}, found {found!r}.")


def _tokens(query: str) -> list[str]:
    found, at = [], 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise QueryError(f"Syntax Error: Unexpected character {query[at]!r}.")
        if match["token"]:
            found.append(match["token"])
        at = match.end()
    return found


def _number_or_word(token: str | None) -> Any:
    text = token or ""
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9.]+", text) else text
