"""Files from strangers: plain data comes out, or one error that names the file and the remedy."""

import os
from pathlib import Path
from typing import cast

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import MOST_YAML_BYTES, parse_document, read_document
from sutler.service.documents.yaml_loader import load_yaml


def of_yaml(text: str) -> object:
    return parse_document(text, is_json=False, field="PROBLEM", name="problem.yaml")


def of_json(text: str) -> object:
    return parse_document(text, is_json=True, field="PROBLEM", name="problem.json")


def billion_laughs(levels: int = 12, width: int = 10) -> str:
    lines = ["l0: &l0 [x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def merged_laughs(levels: int = 13, width: int = 5) -> str:
    lines = ["l0: &l0 {a: 1}"]
    lines += [f"l{i}: &l{i} {{<<: [{', '.join([f'*l{i - 1}'] * width)}]}}" for i in range(1, levels)]
    return "\n".join(lines)


HOSTILE_YAML = {
    "runs code": ("a: !!python/object/apply:os.system ['touch hacked']", "is not allowed"),
    "imports": ("a: !!python/name:os.system", "is not allowed"),
    "own tag": ("a: !secret 3", "is not allowed"),
    "binary": ("a: !!binary aGk=", "is not allowed"),
    "set": ("a: !!set {x, y}", "is not allowed"),
    "billion laughs": (billion_laughs(), "once its aliases are written out"),
    "merged laughs": (merged_laughs(), "once its aliases are written out"),
    "contains itself": ("a: &a [*a]", "contains itself"),
    "merges itself": ("a: &a {<<: *a}", "contains itself"),
    "duplicate key": ("a: 1\nb: 2\na: 3", "the key 'a' stands twice in one mapping at line 3"),
    "duplicate after quoting": ("a: 1\n'a': 3", "stands twice"),
    "two documents": ("a: 1\n---\nb: 2", "another document"),
    "deep lists": ("[" * 400 + "]" * 400, "nested too deeply"),
    "very deep lists": ("[" * 100_000, "nested too deeply"),
    "very deep mappings": ("{a: " * 100_000, "nested too deeply"),
    "deep by aliases": ("a: &x " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 20 + "*x" + "]" * 20, "nested too deeply"),
    "many dashes": ("- " * 20_000, "nested too deeply"),
    "key that is a mapping": ("{{", "a key must be plain text"),
    "key that is an alias of a list": ("a: &x [1]\n? *x\n: 2", "a key must be plain text"),
    "key that is a list": ("? [1]\n: 2", "a key must be plain text"),
    "endless number": ("a: " + "9" * 5000, "thousands of digits"),
    "too many values": ("[" + "1," * 1_000_000 + "1]", "more than 1000000 values"),
    "too many keys": ("{" + ",".join(f"k{n}: 1" for n in range(100_001)) + "}", "more than 100000 keys"),
    "too many merged keys": (
        "- &a {" + ",".join(f"a{n}: 1" for n in range(60_000)) + "}\n"
        "- &b {" + ",".join(f"b{n}: 1" for n in range(60_000)) + "}\n- {<<: [*a, *b]}",
        "more than 100000 keys",
    ),
    "unknown alias": ("a: *b", "undefined alias"),
    "unclosed quote": ("a: 'b", "is not valid YAML"),
    "tab": ("\ta: b", "is not valid YAML"),
    "control character": ("a: \x01", "is not readable YAML"),
    "number tag on text": ("a: !!int b", "is not readable"),
    "merge of a number": ("<<: 3", "takes a mapping"),
}

HOSTILE_JSON = {
    "NaN": ('{"a": NaN}', "NaN is no JSON number"),
    "Infinity": ('{"a": -Infinity}', "-Infinity is no JSON number"),
    "overflow": ('{"a": 1e999}', "is too large"),
    "endless number": (f'{{"a": {"9" * 5000}}}', "thousands of digits"),
    "duplicate key": ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
    "duplicate key after many": (
        "{" + ",".join(f'"k{n}": 1' for n in range(99_000)) + ',"k98999": 1}',
        "the key 'k98999' stands twice",
    ),
    "too many keys": ("{" + ",".join(f'"k{n}": 1' for n in range(100_001)) + "}", "more than 100000 keys"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "cut off": ('{"a": 1', "at line 1, column 8"),
    "not JSON": ("hello", "is not valid JSON"),
    "trailing": ("{} {}", "is not valid JSON"),
}


def test_an_anchor_that_is_set_again_is_meant_as_it_was_set_last() -> None:
    assert load_yaml("- &a 1\n- *a\n- &a 2\n- *a") == [1, 1, 2, 2]


def test_what_aliases_stand_for_is_not_shared() -> None:
    first, second = cast(list[list[int]], load_yaml("- &a [1]\n- *a"))
    assert first == second
    assert first is not second


@pytest.mark.parametrize(("text", "reason"), HOSTILE_YAML.values(), ids=HOSTILE_YAML.keys())
def test_hostile_yaml_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(DocumentError) as caught:
        of_yaml(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "problem.yaml" in str(caught.value)


@pytest.mark.parametrize(("text", "reason"), HOSTILE_JSON.values(), ids=HOSTILE_JSON.keys())
def test_hostile_json_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(DocumentError) as caught:
        of_json(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_yaml_is_read_by_the_rules_of_version_1_2() -> None:
    text = (
        "a: on\nb: 1:30\nc: 2026-11-20\nd: 1e3\ne: 0x10\nf: 0o17\ng: no\nh: ~\ni: True\nj: .5\nk: <<\nl: '4'\nm: -7"
    )
    assert of_yaml(text) == {
        "a": "on",
        "b": "1:30",
        "c": "2026-11-20",
        "d": 1000.0,
        "e": 16,
        "f": 15,
        "g": "no",
        "h": None,
        "i": True,
        "j": 0.5,
        "k": "<<",
        "l": "4",
        "m": -7,
    }


def test_anchors_share_what_is_written_once() -> None:
    text = "mix: &mix [{name: a}]\nmodels: [{workloads: *mix}, {workloads: *mix}]"
    assert of_yaml(text) == {"mix": [{"name": "a"}], "models": [{"workloads": [{"name": "a"}]}] * 2}


def test_a_merge_fills_in_what_the_mapping_does_not_say() -> None:
    text = "base: &base {x: 1, y: 2}\nother: &other {y: 3, z: 4}\nmade: {<<: [*base, *other], x: 5}"
    made = of_yaml(text)
    assert isinstance(made, dict)
    assert made["made"] == {"x": 5, "y": 2, "z": 4}


def test_json_is_read_from_yaml_files_too(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text('{"a": [1, 2.5, "x", null]}')
    assert read_document(path) == {"a": [1, 2.5, "x", None]}


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_document(path) == {"a": 1}


def refusal(path: Path) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(path)
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.yaml" in refusal(tmp_path / "nowhere.yaml")
    assert "does not exist" in refusal(tmp_path / "nowhere.yaml")


def test_a_folder_is_no_document(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)


def test_a_path_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "cannot be read: not a directory" in refusal(tmp_path / "file" / "problem.yaml")


def test_a_path_longer_than_the_system_allows_cannot_be_read(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / ("x" * 5000))


def test_an_empty_file_is_no_document(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(" \n\n")
    assert "is empty" in refusal(path)


@pytest.mark.parametrize("content", [b"\x00\xff\xfe\x80", "a: ü".encode("latin-1"), "a: 1".encode("utf-16")])
def test_what_is_not_utf8_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "problem.yaml"
    path.write_bytes(content)
    assert "is not UTF-8" in refusal(path)


def test_a_file_that_never_ends_is_read_up_to_the_limit() -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("this system has no /dev/zero")
    assert "is larger than" in refusal(Path("/dev/zero"))


def test_a_yaml_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "problem.yaml"
    path.write_bytes(b"# " + b"x" * MOST_YAML_BYTES)
    assert "is larger than 4 MB" in refusal(path)
