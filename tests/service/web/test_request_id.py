"""Every request has an id, which nobody can misuse to write elsewhere."""

import asyncio
import re

import pytest
from fastapi import Request
from starlette.types import Message, Receive, Scope, Send

from sutler.service.web.request_id import RequestId, request_id_of
from tests.service.web.applications import Served, a_scope, no_body

MADE = re.compile(r"[0-9a-f]{32}")


@pytest.mark.parametrize("given", ["a", "A-1_b.C", "x" * 128])
def test_a_usable_id_is_taken_over(served: Served, given: str) -> None:
    answer = served.ask("PUT", "/v1/things/a", headers={"X-Request-ID": given})
    assert answer.headers["X-Request-ID"] == given
    assert answer.json() == given
    assert [line["request_id"] for line in served.lines()] == [given]


@pytest.mark.parametrize(
    "given",
    [b"", b"x" * 129, b"a b", b"a\nb", b"a\r\nSet-Cookie: x", b"\x1b[31m", b"a\n", "é".encode(), b"\xff", b"a/../b"],
)
def test_an_unusable_id_is_replaced(served: Served, given: bytes) -> None:
    answer = served.ask("PUT", "/v1/things/a", headers=[(b"X-Request-ID", given)])
    assert MADE.fullmatch(answer.headers["X-Request-ID"])
    assert answer.json() == answer.headers["X-Request-ID"]


def test_of_two_ids_none_is_believed(served: Served) -> None:
    answer = served.ask("PUT", "/v1/things/a", headers=[("X-Request-ID", "one"), ("X-Request-ID", "two")])
    assert MADE.fullmatch(answer.headers["X-Request-ID"])


def test_requests_without_an_id_get_different_ones(served: Served) -> None:
    ids = {served.ask("GET", "/v1/things/a").headers["X-Request-ID"] for _ in range(5)}
    assert len(ids) == 5


def test_an_answer_names_its_id_once(served: Served) -> None:
    @served.app.get("/own")
    async def own(request: Request) -> str:
        return request_id_of(request)

    for path in ("/own", "/nowhere"):
        answer = served.ask("GET", path, headers={"X-Request-ID": "mine"})
        assert answer.headers.get_list("X-Request-ID") == ["mine"]


def test_requests_at_the_same_time_keep_their_ids_apart(served: Served) -> None:
    async def ask_all() -> list[str]:
        asked = (served.asked("PUT", "/v1/things/a", headers={"X-Request-ID": f"id-{n}"}) for n in range(20))
        return [answer.json() for answer in await asyncio.gather(*asked)]

    assert asyncio.run(ask_all()) == [f"id-{n}" for n in range(20)]
    assert sorted(line["request_id"] for line in served.lines()) == sorted(f"id-{n}" for n in range(20))


def test_what_is_no_http_request_passes_untouched() -> None:
    seen = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, send))

    async def send(message: Message) -> None:
        raise AssertionError(message)

    asyncio.run(RequestId(inner)({"type": "lifespan"}, no_body, send))
    assert seen == [({"type": "lifespan"}, send)]


def test_without_the_middleware_a_request_has_one_id_all_the_same() -> None:
    request = Request(a_scope("GET", "/"))
    assert MADE.fullmatch(request_id_of(request))
    assert request_id_of(request) == request_id_of(request)
