"""Models whose fields are described by the string below each: in JSON Schemas, OpenAPI and errors.

pydantic can take these strings as well (use_attribute_docstrings), but searches the source of every class as soon as
it is defined, which is a good part of what a process takes to start. Here they are read when somebody asks.
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of models with such strings."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, words in descriptions(cls).items():
            field = cls.model_fields[name]
            shown = properties.get(field.alias or name)
            if shown is not None and words != inspect.getdoc(field.annotation):  # which is shown as its own
                shown.setdefault("description", words)
        return schema


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What each field of a model means, by its name; those are left out that nothing is said of."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, Described) and (own := inspect.get_annotations(owner)):
            said = _said_in(owner.__module__).get(owner.__name__, {})
            found = {name: words for name, words in found.items() if name not in own} | said
    return {name: found[name] for name in model.model_fields if name in found}


@cache
def _said_in(module: str) -> dict[str, dict[str, str]]:
    """The strings of a module by class and attribute; none where its source is not there."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # as of what is typed into an interpreter
        return {}
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {each.name: dict(_said_of_attributes(each.body)) for each in classes}


def _said_of_attributes(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for attribute, below in pairwise(body):
        match attribute, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                yield name, inspect.cleandoc(words)
