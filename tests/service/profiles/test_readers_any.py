"""Whatever bytes come: the runs of a known format, or one error that names the file and what to do."""

import json
import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import MOST_JSON_BYTES
from sutler.service.profiles.readers import RunsRead, read_runs
from tests.service.profiles.payloads import JSON_PAYLOADS, TABLE, VLLM, as_bytes, changed, leaves

UNREADABLE = {
    "empty": (b"", "is empty"),
    "white space": (b" \r\n\t", "is empty"),
    "a byte order mark": (b"\xef\xbb\xbf", "is empty"),
    "text": (b"hello", "is not recognised"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\xff", "save the file as UTF-8"),
    "UTF-16": (json.dumps(VLLM).encode("utf-16"), "save the file as UTF-8"),
    "Latin-1 JSON": ('{"a": "é"}'.encode("latin-1"), "is not UTF-8"),
    "cut off": (as_bytes(VLLM)[:-20], "is not valid JSON"),
    "cut off in the second result": (as_bytes(VLLM, VLLM)[:-20], "is not valid JSON"),
    "an empty object": (b"{}", "is JSON of no known format"),
    "an empty list": (b"[]", "is JSON of no known format"),
    "a list of numbers": (b"[1, 2]", "is JSON of no known format"),
    "NaN": (b'{"a": NaN}', "is JSON of no known format"),
    "another benchmark": (b'{"benchmarks": [{"name": "BM_x", "cpu_time": 3}]}', "is JSON of no known format"),
    "very deep lists": (b"[" * 100_000, "nested too deeply"),
    "very deep objects": (b'{"a":' * 100_000, "nested too deeply"),
    "an endless number": (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
    "a key twice": (b'{"a": 1, "a": 2}', "stands twice"),
    "an unclosed quote": (b'gpu,req_per_s\n"l4,2\n', "is not a CSV file"),
    "other columns": (b"a,b\n1,2\n", "is not recognised"),
    "too large": (b"{" + b" " * MOST_JSON_BYTES, "is larger than 64 MB"),
}


def outcome(content: bytes) -> RunsRead | None:
    """None where the bytes were refused as they should be; anything but DocumentError fails the test."""
    try:
        return read_runs(content, name="x")
    except DocumentError as error:
        message = str(error)
    assert message.strip()
    assert message.encode()
    return None


@pytest.mark.parametrize(("content", "reason"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_file_is_one_line_with_its_name(content: bytes, reason: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_runs(content, name="mine.json")
    assert reason in str(caught.value)
    assert "'mine.json'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.txt", "", "x\x1b[31m.json"])
def test_the_name_has_no_say_in_the_format(name: str) -> None:
    assert read_runs(as_bytes(VLLM), name=name).format == "vllm"
    assert read_runs(TABLE.encode("utf-8-sig"), name=name).format == "csv"
    with pytest.raises(DocumentError) as caught:
        read_runs(b"{}", name=name)
    assert str(caught.value).isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    outcome(content)


@given(st.text(alphabet=string.printable, max_size=200))
def test_any_csv_is_read_or_refused(text: str) -> None:
    outcome(f"gpu,tp,req_per_s,ttft_s,concurrency_verified,measured_at\n{text}".encode())


ODD_NUMBERS = st.sampled_from([0, -1, 1.5, 10**400, math.nan, math.inf, -math.inf, 5e-324, 1e308, True])
ODD_TEXTS = st.sampled_from(["", "inf", "4", "\ud800", "x" * 5000, "\x00", "20261301-000000", "synchronous"])
ODD_VALUES = st.one_of(ODD_NUMBERS, ODD_TEXTS, st.none(), st.text(max_size=5), st.floats(), st.integers())
ANYTHING = st.recursive(
    ODD_VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(st.data(), st.sampled_from(JSON_PAYLOADS))
def test_any_change_of_a_result_is_read_or_refused(data: st.DataObject, payload: dict[str, Any]) -> None:
    paths = list(leaves(payload))
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)):
        try:
            payload = changed(payload, *path, to=data.draw(ANYTHING))
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change removed this place
    found = outcome(as_bytes(payload))
    for run in found.runs if found else ():
        for value in (run.ttft_s, run.tpot_s, run.e2e_s, run.req_per_s, run.input_tokens, run.concurrency):
            assert value is None or (math.isfinite(value) and value >= 0)


@given(st.data(), st.sampled_from(JSON_PAYLOADS))
def test_any_piece_of_a_result_is_read_or_refused(data: st.DataObject, payload: dict[str, Any]) -> None:
    content = as_bytes(payload)
    start = data.draw(st.integers(0, 40))
    outcome(content[start : data.draw(st.integers(start, len(content)))])
