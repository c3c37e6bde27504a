"""Other values at paths of a problem."""

import pytest

from sutler.service.documents.changes import changed, parsed, variants
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.examples import CHAT as EXAMPLE

CHAT = EXAMPLE["models"][0]["name"]


def test_a_value_is_put_where_its_path_leads() -> None:
    data = {"a": {"b": 1, "c": 2}, "models": [{"name": "x", "p": 1}, {"name": "y", "p": 2}]}
    assert changed(data, {"a.b": 5})["a"] == {"b": 5, "c": 2}
    assert [m["p"] for m in changed(data, {"models[1].p": 7})["models"]] == [1, 7]
    assert [m["p"] for m in changed(data, {"models.x.p": 7})["models"]] == [7, 2]
    assert [m["p"] for m in changed(data, {"models.*.p": 7, "models.y.p": 8})["models"]] == [7, 8]
    assert data == {"a": {"b": 1, "c": 2}, "models": [{"name": "x", "p": 1}, {"name": "y", "p": 2}]}


def test_mappings_on_the_way_are_made_and_null_takes_away() -> None:
    assert changed({}, {"market.filter.gpus": ["h200-sxm"]}) == {"market": {"filter": {"gpus": ["h200-sxm"]}}}
    assert changed({"budget": 3, "a": {"b": 1}}, {"budget": None, "a.c": None}) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("models.nobody.precision", rf"models\.nobody: .*known there are {CHAT}"),
        ("models[7].precision", r"models\[7\]: "),
        ("objective.kind.more", r"objective\.kind: 'min_cost': must be a mapping"),
        ("models[", "is no path"),
        ("", "is empty"),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        changed(EXAMPLE, {path: 1})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("b=10,15,20", [10, 15, 20]),
        ("b=1e3", [1000.0]),
        ("b=[bf16, fp8]", [["bf16", "fp8"]]),
        ("b=[bf16, fp8],fp8", [["bf16", "fp8"], "fp8"]),
        ("b={kind: min_cost, headroom_fraction: 0.1}", [{"kind": "min_cost", "headroom_fraction": 0.1}]),
        ('b="a,b",c', ["a,b", "c"]),
        ("b=null,on", [None, "on"]),
        ("b=x=y", ["x=y"]),
    ],
)
def test_values_are_yaml_and_commas_between_them_divide(text: str, values: list[object]) -> None:
    assert parsed(text) == [{"b": value} for value in values]


@pytest.mark.parametrize("text", ["budget", "=3", "b=[1", "b=!!python/name:os.system"])
def test_what_is_no_change_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(DocumentError, match=r"KEY=VALUE|written?|write it as in YAML"):
        parsed(text)


def test_variants_are_all_combinations_and_bounded() -> None:
    assert variants([]) == [{}]
    assert variants([parsed("a=1,2"), parsed("b=x,y")]) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]
    with pytest.raises(DocumentError, match="at most 100"):
        variants([[{"a": i} for i in range(11)], [{"b": i} for i in range(10)]])
