"""YAML read back is what was written, and plain words are plain in every version of YAML."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.documents.yaml_loader import load_yaml
from sutler.service.export.yaml_text import LiteralBlock, yaml_document, yaml_documents

TEXTS = st.text() | st.sampled_from(["---", "...", "<<", "*a", "&a", "!!python/name:os.system", "{{x}}", "# x", "? "])
NODES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(NODES)
def test_what_is_read_is_what_was_written(node: Any) -> None:
    assert yaml.safe_load(yaml_document({"x": node}, heading=["a comment"])) == {"x": node}


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_documents_stay_apart(texts: list[str]) -> None:
    written = yaml_documents([{"x": text} for text in texts], heading=["a comment", ""])
    assert list(yaml.safe_load_all(written)) == [{"x": text} for text in texts]
    assert len(re.findall(r"^---$", written, re.MULTILINE)) == len(texts)


@given(TEXTS)
def test_blocks_are_text_too(text: str) -> None:
    assert yaml.safe_load(yaml_document({"x": LiteralBlock(text)}, heading=[])) == {"x": text}


# YAML 1.1 or 1.2, or a parser of Go, reads these as something else than text where they are not quoted.
@pytest.mark.parametrize(
    "word",
    ["y", "No", "on", "null", "~", "1e3", "0o7", "0x1F", "1_000", "1:30", ".inf", "2026-11-20", "=", "<<", "NaN"],
)
def test_words_that_versions_of_yaml_read_differently_are_quoted(word: str) -> None:
    written = yaml_document({"x": word, word: 1}, heading=[])
    assert f'x: "{word}"' in written
    assert f'"{word}": 1' in written
    assert load_yaml(written) == {"x": word, word: 1}


def test_ordinary_words_are_not_quoted() -> None:
    written = yaml_document({"image": "vllm/vllm-openai:v0.33.0", "app.kubernetes.io/name": "vllm"}, heading=[])
    assert written == "image: vllm/vllm-openai:v0.33.0\napp.kubernetes.io/name: vllm\n"
