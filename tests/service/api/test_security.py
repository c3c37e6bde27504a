"""What attackers try over HTTP. Keys and webhook addresses have tests of their own, in auth and webhooks."""

import json
import socket
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from sutler.service.documents.examples import CHAT as ESTIMATED_CHAT
from tests.looped import for_each
from tests.postgres import Server, a_folder
from tests.service.api.conftest import MOST_BODY_BYTES, Guarded
from tests.service.builders import CHAT
from tests.service.running import Running, serving, settings, until

OPEN: Final = {"/healthz", "/readyz"}
OF_ADMINS: Final = ("/v1/webhooks", "/v1/deliveries", "/v1/audit", "/v1/keys")
BOMB: Final = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(12)
)
YAML: Final = {"Content-Type": "application/yaml"}


def operations(running: Running) -> list[tuple[str, str]]:
    paths: dict[str, Any] = running.get("/openapi.json").json()["paths"]
    ids = {"{plan_id}", "{webhook_id}", "{delivery_id}"}
    named = {"{name}": "nobody", **{placeholder: str(uuid4()) for placeholder in ids}}
    rest = {"{format}": "vllm", "{revision}": "1", "{key_id}": "nobodyskey00"}
    found = []
    for path, methods in paths.items():
        for placeholder, value in {**named, **rest}.items():
            path = path.replace(placeholder, value)  # noqa: PLW2901
        found += [(method.upper(), path) for method in methods]
    return found


def test_every_call_but_the_probes_asks_for_a_key(guarded: Guarded) -> None:
    for method, path in operations(guarded.running):
        answer = guarded.ask(None, method, path)
        assert (answer.status_code == 401) == (path not in OPEN), (method, path, answer.status_code)
        if path not in OPEN:
            assert "Bearer" in answer.headers["WWW-Authenticate"]
            assert answer.json()["type"] == "urn:sutler:problem:not-authenticated"


def test_every_call_asks_for_its_scope(guarded: Guarded) -> None:
    for method, path in operations(guarded.running):
        if path in OPEN:
            continue
        changes_nothing = method == "GET" or path == "/v1/estimates"
        needed = "admin" if path.startswith(OF_ADMINS) else "read" if changes_nothing else "plan"
        for scope in ("read", "plan", "admin"):
            status = guarded.ask(scope, method, path).status_code
            is_enough = ("read", "plan", "admin").index(scope) >= ("read", "plan", "admin").index(needed)
            assert (status != 403) == is_enough, (method, path, scope, status)
            assert status < 500 or path.endswith("metrics"), (method, path, status)


@pytest.mark.parametrize("key", ["", "x", "sutler_aaaaaaaaaaaa_" + "b" * 43, "' OR 1=1 --", "a" * 7000, "ä", "\t"])
def test_a_wrong_key_is_refused_and_written_nowhere(guarded: Guarded, key: str) -> None:
    answer = guarded.running.get("/v1/plans", headers={"Authorization": f"Bearer {key}".encode()})
    assert answer.status_code == 401
    if len(key) > 10:
        assert key not in guarded.running.said()
        assert key not in answer.text


def test_a_body_that_says_it_is_too_large_is_refused(guarded: Guarded) -> None:
    answer = guarded.ask("plan", "POST", "/v1/plans", json={**CHAT, "x": "y" * MOST_BODY_BYTES})
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:sutler:problem:too-large")
    assert "SUTLER_MOST_BODY_BYTES" in answer.json()["detail"]


def test_a_body_that_does_not_say_how_large_it_is_is_refused_all_the_same(guarded: Guarded) -> None:
    chunks = (b"x" * 10_000 for _ in range(MOST_BODY_BYTES // 10_000 + 1))
    headers = {"Content-Type": "application/json"}
    answer = guarded.ask("plan", "POST", "/v1/plans", data=chunks, headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "body",
    ["[" * 90_000, '{"a":' * 20_000, '{"models":' + "[" * 20_000 + "]" * 20_000 + "}", "{" + "}" * 90_000],
    ids=["lists", "objects", "closed lists", "closings"],
)
@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
def test_what_is_nested_without_end_is_refused(guarded: Guarded, body: str, media_type: str) -> None:
    answer = guarded.ask("plan", "POST", "/v1/plans", data=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")


@pytest.mark.parametrize(
    "body",
    [
        BOMB,
        "a: &a [*a]",
        "!!python/object/apply:os.system ['true']",
        "? !!python/name:os.system",
        "a: !!binary aGVsbG8=",
        "{" * 5_000,
        "a: 1\na: 2",
        "--- {}\n--- {}",
        "9" * 5_000,
        "{a: .nan}",
        "\x00",
        "﻿",
    ],
)
def test_yaml_bombs_and_tags_are_refused(guarded: Guarded, body: str) -> None:
    answer = guarded.ask("plan", "POST", "/v1/plans", data=body.encode(), headers=YAML)
    assert answer.status_code == 422, answer.text
    assert len(answer.content) < 5_000


@pytest.mark.parametrize(
    "body",
    ['{"objective": 1e999}', '{"a": NaN}', '{"a": 1, "a": 2}', "", "null", "[]", '"x"', '"\\ud800"', "{'a': 1}"],
)
def test_json_that_is_none_of_ours_is_refused(guarded: Guarded, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    assert guarded.ask("plan", "POST", "/v1/plans", data=body, headers=headers).status_code == 422
    assert (
        guarded.ask("plan", "POST", "/v1/plans", data=b"\xff\xfe" + body.encode(), headers=headers).status_code == 422
    )


@pytest.mark.parametrize(
    "media_type", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_web_form_can_send_is_no_problem(guarded: Guarded, media_type: str | None) -> None:
    """A page in a browser can send these to any address without asking."""
    headers = {} if media_type is None else {"Content-Type": media_type}
    answer = guarded.ask("plan", "POST", "/v1/plans", data=json.dumps(CHAT).encode(), headers=headers)
    assert answer.status_code == 415


INJECTIONS: Final = (
    "'; DROP TABLE plan; --",
    "' OR '1'='1",
    "1); SELECT pg_sleep(30); --",
    "\\'; COPY plan TO PROGRAM 'true'; --",
    "$$; DROP TABLE plan; $$",
    "%' UNION SELECT secret FROM webhook --",
)


@pytest.mark.parametrize("text", INJECTIONS)
def test_sql_in_any_field_is_text(guarded: Guarded, text: str) -> None:
    for path, params in (
        ("/v1/plans", {"deployment": text}),
        ("/v1/plans", {"status": text}),
        ("/v1/plans", {"cursor": text}),
        ("/v1/deployments", {"cursor": text}),
        ("/v1/offers", {"gpu": text}),
        ("/v1/offers", {"region": text, "as_of": "1h"}),
        ("/v1/offers", {"as_of": text}),
        ("/v1/offers/history", {"gpu": "h100-sxm", "contract": text}),
        ("/v1/audit", {"actor": text, "action": text, "target": text}),
    ):
        answer = guarded.ask("admin", "GET", path, params=params)
        assert answer.status_code in {200, 422}, (path, params, answer.text)
        assert answer.status_code == 422 or answer.json()["items"] == [], path
    named = {**ESTIMATED_CHAT, "models": [{**CHAT["models"][0], "name": text}]}
    planned = guarded.ask("plan", "POST", "/v1/plans", json={**named, "solver": {"time_limit_s": 1}})
    assert planned.status_code == 201
    assert guarded.ask("read", "GET", "/v1/plans").json()["items"][0]["id"] == planned.json()["id"]
    assert guarded.ask("read", "GET", f"/v1/deployments/{text}").status_code in {404, 422}


@pytest.mark.parametrize(
    "path",
    [
        "//v1/plans",
        "/v1/plans/../audit",
        "/v1/plans/%2e%2e/audit",
        "/v1/%2e%2e/%2e%2e/etc/passwd",
        "/v1/plans/%00",
        "/v1/deployments/a%2Fb",
        "/v1/deployments/a%0d%0aSet-Cookie:x",
        "/v1/deployments/%F0%9F%98%80",
        "/v1/deployments/%ff%fe",
        "/v1/deployments/" + "a" * 8_000,
        "/v1/plans/",
        "/V1/PLANS",
        "/v1/plans;jsessionid=1",
    ],
)
def test_odd_paths_lead_nowhere(guarded: Guarded, path: str) -> None:
    status, headers, _ = raw(guarded, f"GET {path} HTTP/1.1\r\n{bearer(guarded)}".encode())
    assert status in {400, 404, 414, 422}, status
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "X: a\x00b\r\n",
        "X : y\r\n",
        "Authorization: Bearer x\r\n",
        "X: " + "y" * 200_000 + "\r\n",
        "".join(f"X-{i}: y\r\n" for i in range(5_000)),
    ],
    ids=["two lengths", "two framings", "negative", "huge", "odd coding", "NUL", "space", "two keys", "long", "many"],
)
def test_odd_headers_are_refused_and_harm_nobody(guarded: Guarded, lines: str) -> None:
    request = f"POST /v1/plans HTTP/1.1\r\nContent-Type: application/json\r\n{bearer(guarded)}{lines}"
    status, _, _ = raw(guarded, request.encode(), b'{"a":')
    assert status == 0 or 400 <= status < 500, status  # 0: the connection was closed
    assert guarded.running.get("/healthz").status_code == 200


def test_headers_of_proxies_and_of_other_methods_change_nothing(guarded: Guarded) -> None:
    headers = {
        "X-HTTP-Method-Override": "DELETE",
        "X-Original-URL": "/v1/audit",
        "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Host": "evil.example",
        "X-Rewrite-URL": "/v1/audit",
    }
    assert guarded.ask(None, "GET", "/v1/plans", headers=headers).status_code == 401
    answer = guarded.ask("read", "GET", "/v1/plans", headers=headers)
    assert answer.status_code == 200
    assert "evil" not in answer.text


@pytest.fixture(scope="module")
def keyless(service: Running, postgres: Server) -> Iterator[Running]:
    """An API that asks nobody on loopback for a key, on the database of the service."""
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("service"))
        with serving(folder, environment, "--role", "api") as running:
            yield running


def test_without_keys_only_names_of_this_machine_are_answered(keyless: Running) -> None:
    """A page of anybody's can have a name of its own resolve to loopback."""
    for host in ("evil.example", "evil.example:8400", "127.0.0.1.evil.example", "localhost.evil.example", ""):
        answer = keyless.get("/v1/plans", headers={"Host": host})
        assert (answer.status_code, answer.json()["type"]) == (421, "urn:sutler:problem:wrong-host")
    for host in ("localhost", "127.0.0.1:8400", "LOCALHOST:1", "[::1]:8400"):
        assert keyless.get("/v1/plans", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("header", ["Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"])
def test_without_keys_no_proxy_lends_its_address_to_its_callers(keyless: Running, header: str) -> None:
    answer = keyless.get("/v1/plans", headers={header: "203.0.113.9"})
    assert (answer.status_code, "--require-key" in answer.text) == (421, True)


FOREIGN_PAGES: Final[tuple[dict[str, str], ...]] = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8400"},
    {"Sec-Fetch-Site": "odd"},
    {"Origin": "https://evil.example"},
    {"Origin": "https://localhost.evil.example"},
    {"Origin": "null"},
    {"Origin": "http://[::1"},
    {"Origin": ""},
)
OWN_PAGES: Final[tuple[dict[str, str], ...]] = (
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8400"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://localhost:3000"},
)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@for_each("headers", FOREIGN_PAGES)
def test_no_page_of_another_site_changes_anything(keyless: Running, method: str, headers: dict[str, str]) -> None:
    answer = keyless.ask(method, "/v1/deployments/a/holdings", headers={"Host": "localhost:8400", **headers})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:sutler:problem:foreign-page")


@for_each("headers", OWN_PAGES)
def test_pages_of_this_host_and_other_programs_may_change_things(keyless: Running, headers: dict[str, str]) -> None:
    answer = keyless.ask("DELETE", "/v1/deployments/nobody", headers={"Host": "localhost:8400", **headers})
    assert answer.status_code == 404


def test_a_password_that_a_browser_remembers_is_of_no_use_to_other_sites(guarded: Guarded) -> None:
    for headers in FOREIGN_PAGES:
        assert guarded.ask("admin", "DELETE", "/v1/deployments/nobody", headers=headers).status_code == 403
    assert guarded.ask("admin", "GET", "/v1/plans", headers=FOREIGN_PAGES[0]).status_code == 200


@pytest.mark.parametrize("path", ["/v1/plans", "/docs", "/nowhere", "/healthz"])
def test_browsers_are_told_to_be_careful(keyless: Running, path: str) -> None:
    answer = keyless.get(path, headers={"Host": "localhost:8400"})
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert ("unsafe-inline" in policy) == (path == "/docs")


def test_what_callers_send_never_breaks_a_line_of_the_log(guarded: Guarded) -> None:
    mark = uuid4().hex
    hostile = f'{mark}%0a%7b"level":"error"%7d%1b[31m%e2%80%ae'
    guarded.ask("plan", "POST", f"/v1/deployments/{hostile}/replan", headers={"X-Request-ID": f'{mark}"}}'})
    guarded.ask(
        "plan", "POST", "/v1/plans", data=f'{{"{mark}\\n\\u001b": 1}}', headers={"Content-Type": "application/json"}
    )
    lines = until(lambda: [line for line in guarded.running.said().splitlines() if mark in line])
    for line in lines:
        assert isinstance(json.loads(line), dict)
        assert line.isprintable()


def test_the_same_idempotency_key_of_two_callers_is_two_requests(guarded: Guarded) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    problem = {**CHAT, "solver": {"time_limit_s": 1}}
    first = guarded.ask("plan", "POST", "/v1/plans", json=problem, headers=key)
    second = guarded.ask("admin", "POST", "/v1/plans", json=problem, headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["id"] != second.json()["id"]


def test_no_event_is_sent_into_private_networks(guarded: Guarded) -> None:
    for url in (
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/",
        "http://[::1]/",
        "http://0x7f.1/",
        "file:///etc",
    ):
        answer = guarded.ask("admin", "POST", "/v1/webhooks", json={"url": url, "events": ["plan.issued"]})
        assert answer.status_code == 422, url
        assert answer.json()["errors"][0]["field"] == "url"


def test_who_changed_what_is_on_record(guarded: Guarded, name: str) -> None:
    problem = {**CHAT, "solver": {"time_limit_s": 1}}
    made = guarded.ask("plan", "POST", "/v1/deployments", json={"name": name, "problem": problem})
    guarded.ask("admin", "DELETE", f"/v1/deployments/{name}")
    target = {"target": f"deployment/{name}"}
    found = guarded.ask("admin", "GET", "/v1/audit", params=target).json()["items"]
    assert [entry["action"] for entry in found] == ["deployment.delete", "deployment.create"]
    assert found[0]["actor"] != found[1]["actor"]
    assert found[1]["request_id"] == made.headers["X-Request-ID"]
    assert all(key not in json.dumps(found) for key in guarded.keys.values())


def bearer(guarded: Guarded) -> str:
    return f"Authorization: Bearer {guarded.keys['admin']}\r\n"


def raw(guarded: Guarded, head: bytes, body: bytes = b"") -> tuple[int, str, bytes]:
    """Status (0: none), headers in lower case and body of a request that no library would send."""
    url = urlsplit(guarded.running.url)
    assert url.hostname is not None
    with socket.create_connection((url.hostname, url.port or 80), timeout=20) as connection:
        connection.sendall(head + b"Host: localhost\r\nConnection: close\r\n\r\n" + body)
        if body:
            connection.shutdown(socket.SHUT_WR)  # nobody is to wait for the rest
        try:
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        except ConnectionError:
            return 0, "", b""
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]) if top else 0, top.decode("latin-1").lower(), rest
