"""The one HTTP policy: what counts as an answer. Status first, then the content type, then JSON."""

import gzip
import json
import math
import zlib
from typing import Any

import pytest

from sutler.adapters.errors import AnswerError
from sutler.adapters.http import HttpPolicy
from tests.adapters.asking import asked, raw, refused
from tests.adapters.server import (
    JSON,
    Raw,
    Reply,
    Wire,
    json_reply,
    text_reply,
)

# Status first, then the content type, then JSON


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/problem+json"],
)
def test_json_may_be_announced_in_several_ways(content_type: str) -> None:
    answer, _ = asked(Reply(200, b'{"a": 1}', {"Content-Type": content_type}))
    assert answer.data == {"a": 1}
    assert answer.headers["content-type"] == content_type


@pytest.mark.parametrize(
    "content_type", ["text/html", "text/plain", "application/javascript", "", "json", "image/png"]
)
def test_what_is_not_announced_as_json_is_a_bad_body(content_type: str) -> None:
    error, server = refused(Reply(200, b'{"a": 1}', {"Content-Type": content_type}))
    assert isinstance(error, AnswerError)
    assert (error.outcome, error.http_status) == ("bad_body", 200)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"offers": [{"id": 1}, {"id"',
        b'{"a": 1} {"b": 2}',
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": \xff}',
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    ],
    ids=["empty", "html", "cut", "two", "quotes", "octal", "bytes", "text bytes", "open lists", "deep objects"],
)
def test_a_body_that_is_no_json_is_asked_for_again_and_then_given_up(body: bytes) -> None:
    error, server = refused(Reply(200, body, {"Content-Type": JSON}))
    assert (error.outcome, error.http_status) == ("bad_body", 200)
    assert error.wait_s is not None
    assert len(server.requests) == 3


def test_a_byte_order_mark_is_no_reason_to_lose_a_body() -> None:
    answer, _ = asked(Reply(200, b'\xef\xbb\xbf{"a": 1}', {"Content-Type": JSON}))
    assert answer.data == {"a": 1}


def test_of_a_repeated_name_the_last_value_counts() -> None:
    answer, _ = asked(Reply(200, b'{"a": 1, "a": 2}', {"Content-Type": JSON}))
    assert answer.data == {"a": 2}


@pytest.mark.parametrize("odd", [b"9" * 5000, b"1e999", b"NaN", b"-Infinity"])
def test_one_number_that_is_none_does_not_cost_the_body(odd: bytes) -> None:
    answer, _ = asked(Reply(200, b'{"a": ' + odd + b', "b": 2}', {"Content-Type": JSON}))
    assert answer.data["b"] == 2
    assert answer.data["a"] in {math.inf, "NaN", "-Infinity"}, "NaN itself would make a row unequal to its copy"


def test_a_refusals_status_counts_whatever_its_body_is() -> None:
    cut = raw("HTTP/1.1 401 No\nContent-Type: application/json\nContent-Length: 500", b'{"error": "expired')
    error, server = refused(cut)
    assert (error.outcome, error.http_status) == ("auth_error", 401)
    assert "expired" in str(error)
    assert len(server.requests) == 1


def test_the_wait_of_a_refusal_counts_though_its_body_breaks_off() -> None:
    cut = raw("HTTP/1.1 429 No\nRetry-After: 60\nContent-Length: 500", b"later")
    error, _ = refused(cut)
    assert (error.outcome, error.wait_s) == ("retry", 60.0)


def test_a_page_of_html_is_told_in_one_line_without_markup() -> None:
    page = "<html><head><title>503</title></head>\n<body><h1>Back\x00 soon\u202e</h1>" + "x" * 9000
    error, _ = refused(text_reply(page, 503))
    assert "answers 503: 503 Back soon xxx" in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 400


def test_a_message_of_a_refusal_is_printable() -> None:
    error, _ = refused(json_reply({"error": "bad\x00\x1b[31m", "msg": "wor\ud800ds\u202e\n" + "y" * 9000}, 400))
    assert str(error).isprintable()
    assert "bad" in str(error)
    assert len(str(error)) < 500


def test_an_unprintable_content_type_is_told_printably() -> None:
    error, _ = refused(Reply(200, b"{}", {"Content-Type": "text/\x00\x1bodd"}))
    assert error.outcome == "bad_body"
    assert str(error).isprintable()


# Bodies: cut, compressed, too large


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("Content-Length: 40", b'{"offers": []}'),
        ("Transfer-Encoding: chunked", b'e\r\n{"offers": []}\r\n'),
        ("Transfer-Encoding: chunked", b'zz\r\n{"offers": []}\r\n0\r\n\r\n'),
    ],
    ids=["length too long", "last chunk missing", "odd chunk size"],
)
def test_a_body_that_breaks_off_is_bad_though_what_came_is_json(head: str, body: bytes) -> None:
    error, server = refused(raw(f"HTTP/1.1 200 OK\nContent-Type: application/json\n{head}", body))
    assert (error.outcome, error.http_status) == ("bad_body", 200)
    assert len(server.requests) == 3


def test_a_body_longer_than_announced_ends_where_it_was_announced() -> None:
    answer, _ = asked(raw("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 8", b'{"a": 1}garbage'))
    assert answer.data == {"a": 1}


def test_bodies_may_come_in_chunks() -> None:
    chunks = b'4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n'
    answer, _ = asked(raw("HTTP/1.1 200 OK\nContent-Type: application/json\nTransfer-Encoding: chunked", chunks))
    assert answer.data == {"a": 1}


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_bodies_are_unpacked(encoding: str, compress: Any) -> None:
    data = {"rows": list(range(50_000))}
    body = compress(json.dumps(data).encode())
    answer, _ = asked(Reply(200, body, {"Content-Type": JSON, "Content-Encoding": encoding}))
    assert answer.data == data


@pytest.mark.parametrize(
    "body",
    [b'{"a": 1}', gzip.compress(b'{"a": 1}')[:-12], gzip.compress(b'{"a"')],
    ids=["not compressed", "cut short", "not JSON"],
)
def test_a_garbled_compressed_body_is_bad(body: bytes) -> None:
    error, _ = refused(Reply(200, body, {"Content-Type": JSON, "Content-Encoding": "gzip"}))
    assert error.outcome == "bad_body"


def of_size(size: int) -> bytes:
    return b'"' + b"x" * (size - 2) + b'"'


def test_a_body_of_just_the_limit_is_read_and_one_byte_more_is_not() -> None:
    policy = HttpPolicy(most_body_bytes=100_000)
    answer, _ = asked(Reply(200, of_size(100_000), {"Content-Type": JSON}), policy=policy)
    assert len(answer.data) == 99_998
    error, _ = refused(Reply(200, of_size(100_001), {"Content-Type": JSON}), policy=policy)
    assert error.outcome == "bad_body"
    assert "more than 100000 bytes" in str(error)


def test_a_small_body_that_unpacks_to_a_huge_one_is_refused() -> None:
    bomb = gzip.compress(b" " * 20_000_000)
    assert len(bomb) < 100_000
    policy = HttpPolicy(most_body_bytes=1_000_000)
    error, _ = refused(Reply(200, bomb, {"Content-Type": JSON, "Content-Encoding": "gzip"}), policy=policy)
    assert error.outcome == "bad_body"
    assert "more than 1000000 bytes" in str(error)


def test_a_body_without_end_is_refused() -> None:
    def write(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while wire.send(b" " * 65_536):
            pass

    error, _ = refused(Raw(write), policy=HttpPolicy(most_body_bytes=1_000_000))
    assert error.outcome == "bad_body"


@pytest.mark.parametrize("status", [202, 203, 206])
def test_an_answer_that_calls_itself_something_else_than_whole_is_bad(status: int) -> None:
    error, _ = refused(json_reply({"offers": []}, status))
    assert (error.outcome, error.http_status) == ("bad_body", status)
