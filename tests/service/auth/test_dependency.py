"""Keys over HTTP: scopes, limits and what the OpenAPI document says of them."""

from dataclasses import replace
from typing import Any

import pytest
from httpx import Response
from sqlalchemy import Engine

from sutler.service.settings import ServiceSettings
from sutler.service.web.caller import SCOPES, Scope
from tests.service.auth.builders import (
    SETTINGS,
    UNKNOWN_KEY,
    a_client,
    a_process,
    basic,
    bearer,
    run,
    secret_of,
    with_key,
)

PAGES = {"read": "/read", "plan": "/plan", "admin": "/admin"}


def got(engine: Engine, path: str, *, scope: Scope = "admin", headers: Any = None, **options: Any) -> Response:
    """With a fresh key of this scope, unless there are headers."""

    async def asked() -> Response:
        async with a_process(engine, **options) as process, a_client(process) as client:
            key = (await process.a_key(scope=scope)).made.text
            return await client.get(path, headers=with_key(key) if headers is None else headers)

    return run(asked())


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("needed", SCOPES)
def test_a_scope_reaches_what_it_includes_and_no_further(engine: Engine, scope: Scope, needed: Scope) -> None:
    answer = got(engine, PAGES[needed], scope=scope)
    if SCOPES.index(scope) >= SCOPES.index(needed):
        assert answer.status_code == 200
        assert answer.json().startswith("key/")
    else:
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:sutler:problem:not-allowed"
        assert f"scope {scope}" in answer.json()["detail"]
        assert f"--scope {needed}" in answer.json()["detail"]


def test_without_a_key_the_answer_names_both_ways_to_show_one(engine: Engine) -> None:
    answer = got(engine, "/read", headers={})
    assert answer.status_code == 401
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="sutler", Basic realm="sutler"'
    assert "Authorization: Bearer KEY" in answer.json()["detail"]


def test_on_loopback_without_a_key_the_caller_is_local_and_may_do_all(engine: Engine) -> None:
    assert got(engine, "/admin", headers={}, needs_key=False).json() == "local"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer \xff\xfe",
        b"Bearer " + b"x" * 1_000_000,
        b"Basic !!!!",
        b"Basic \xe9\xe9",
        basic("no colon").encode(),
        basic(f"user:{UNKNOWN_KEY}\0").encode(),
        basic(b"\xff:\xff").encode(),
        bearer(UNKNOWN_KEY).encode(),
    ],
)
def test_an_odd_header_is_refused_and_not_repeated(engine: Engine, header: bytes) -> None:
    answer = got(engine, "/read", headers={b"Authorization": header}, needs_key=False)
    assert answer.status_code == 401
    assert len(answer.content) < 1_000
    assert secret_of(UNKNOWN_KEY) not in answer.text


def test_two_keys_at_once_are_refused(engine: Engine) -> None:
    async def asked() -> Response:
        async with a_process(engine) as process, a_client(process) as client:
            key = (await process.a_key()).made.text
            headers = [("Authorization", bearer(key)), ("authorization", bearer(key))]
            return await client.get("/read", headers=headers)

    answer = run(asked())
    assert answer.status_code == 401
    assert "send it once" in answer.json()["detail"]


def limited(engine: Engine, settings: ServiceSettings, method: str) -> list[Response]:
    async def asked() -> list[Response]:
        async with a_process(engine, settings=settings) as process, a_client(process) as client:
            headers = with_key((await process.a_key()).made.text)
            return [await client.request(method, "/read", headers=headers) for _ in range(5)]

    return run(asked())


def test_too_many_reads_are_told_when_to_come_back(engine: Engine) -> None:
    answers = limited(engine, replace(SETTINGS, reads_per_second=0.5), "GET")
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429, 429]
    assert answers[-1].headers["Retry-After"] == "2"


def test_the_limit_on_reads_does_not_count_what_changes_something(engine: Engine) -> None:
    answers = limited(engine, replace(SETTINGS, reads_per_second=0.5), "POST")
    assert {answer.status_code for answer in answers} == {200}


def test_the_openapi_document_shows_both_ways_for_every_call_that_takes_a_key(engine: Engine) -> None:
    document = got(engine, "/openapi.json", headers={}).json()
    schemes = document["components"]["securitySchemes"]
    assert {name: (scheme["type"], scheme["scheme"]) for name, scheme in schemes.items()} == {
        "bearer": ("http", "bearer"),
        "basic": ("http", "basic"),
    }
    calls = [document["paths"][path]["get"] for path in (*PAGES.values(), "/v1/audit")]
    assert [call["security"] for call in calls] == 4 * [[{"bearer": []}, {"basic": []}]]
    assert [call.get("parameters", []) for call in calls[:3]] == [[], [], []]
