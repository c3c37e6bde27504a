"""What fields mean, from the strings below them."""

import sys
from types import ModuleType
from typing import Generic, TypeVar

import pytest
from pydantic import Field

from sutler.service.documents.described import Described, descriptions

T = TypeVar("T")


class Part(Described):
    """Says what it is."""

    width_m: float
    """Metres,
    not feet."""
    unsaid: int = 0


class Whole(Part, Generic[T]):
    unsaid: int = 1
    """Said here."""
    width_m: float
    named: str = Field(alias="name")
    """What others call it."""
    part: Part
    """Says what it is."""
    other: Part
    """Not the same."""
    stated: int = Field(description="In place of what is below.")
    """Below."""
    items: list[T]
    """Any."""


def test_a_string_below_a_field_says_what_it_means() -> None:
    assert descriptions(Part) == {"width_m": "Metres,\nnot feet."}
    properties = Part.model_json_schema()["properties"]
    assert properties["width_m"]["description"] == "Metres,\nnot feet."
    assert "description" not in properties["unsaid"]


def test_a_class_says_anew_what_its_own_fields_mean() -> None:
    for model in (Whole, Whole[int]):
        said = {name: shown.get("description") for name, shown in model.model_json_schema()["properties"].items()}
        assert said == {
            "width_m": None,
            "unsaid": "Said here.",
            "name": "What others call it.",
            "part": None,  # its type says it
            "other": "Not the same.",
            "stated": "In place of what is below.",
            "items": "Any.",
        }


def test_without_its_source_a_class_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ModuleType("typed_in")
    monkeypatch.setitem(sys.modules, "typed_in", typed)
    exec("from sutler.service.documents.described import Described\nclass Typed(Described):\n    x: int", vars(typed))
    assert descriptions(typed.Typed) == {}
    assert "description" not in typed.Typed.model_json_schema()["properties"]["x"]
