"""Every failure on the wire, and what the real adapters make of it."""

import gzip
import json
import socket
import time

import pytest
import requests

from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.failures import FAILURES, kinds_of
from sutler.adapters.fake.schedule import parsed_failure
from sutler.adapters.fake.server import FakeCloud
from sutler.adapters.http import HttpPolicy
from tests.adapters.fake.builders import CANARY, IMPATIENT, NIGHT_S, PLAYED, a_cloud, polled

SEARCH = "/api/v0/bundles/"
GRAPHQL_KINDS = {"graphql_errors", "graphql_partial"}
OUTCOMES = {
    "http_429_plain": "retry",
    "http_429_retry_after": "retry",
    "http_429_windows": "retry",
    "quota": "quota",
    "http_500": "retry",
    "http_502_html": "retry",
    "http_503": "retry",
    "bad_key": "auth_error",
    "echo_key": "auth_error",
    "http_400": "config_error",
    "truncated": "bad_body",
    "broken_off": "bad_body",
    "html_200": "bad_body",
    "empty": "ok",
    "no_body": "bad_body",
    "wrong_shape": "bad_shape",
    "redirect_elsewhere": "config_error",
    "redirect_loop": "config_error",
    "slow": "retry",
    "hang": "retry",
    "too_large": "bad_body",
    "gzip_bomb": "bad_body",
    "graphql_errors": "retry",
    "graphql_partial": "partial",
    "garbage_rows": "ok",
}
# A client that is not known may be refused with 400 too (RFC 6749, 5.2).
OWN_OUTCOMES = {("verda", "http_400"): "auth_error"}
SMALL_BODIES = HttpPolicy(most_body_bytes=1_500_000)


def test_every_failure_has_an_outcome_to_expect() -> None:
    assert OUTCOMES.keys() == FAILURES.keys()


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in PLAYED for kind in kinds_of(name)])
def test_the_real_adapter_makes_of_it_what_it_should(name: str, kind: str) -> None:
    api = "graphql" if kind in GRAPHQL_KINDS else None
    policy = IMPATIENT if kind in {"slow", "hang"} else SMALL_BODIES
    with a_cloud(machines=150, flood_bytes=2_000_000, drip_pause_s=0.02) as cloud:
        cloud.fail(name, kind)
        poll = polled(cloud, name, policy=policy, api=api)
    assert poll.outcome == OWN_OUTCOMES.get((name, kind), OUTCOMES[kind])
    assert CANARY not in repr(poll)
    if not poll.is_usable:
        assert (poll.offers, poll.covered) == ((), ())
    if kind == "empty":
        assert (poll.kept, poll.rejected) == (0, ())
    if kind == "garbage_rows":
        assert poll.rejected
        assert poll.kept > 0


@pytest.mark.parametrize("name", PLAYED)
def test_good_offers_survive_among_garbage(name: str) -> None:
    with a_cloud() as cloud:
        good = polled(cloud, name)
        cloud.fail(name, "garbage_rows")
        poll = polled(cloud, name)
    assert {offer.key for offer in good.offers} <= {offer.key for offer in poll.offers}


def test_garbage_at_vast_has_every_reason() -> None:
    with a_cloud() as cloud:
        cloud.fail("vastai", "garbage_rows")
        poll = polled(cloud, "vastai", contracts="on_demand")
    assert poll.rejected_by_reason == {
        "bad_number": 2,
        "no_on_demand_price": 1,
        "price_nonpositive": 1,
        "price_too_high": 1,
        "unknown_gpu": 3,
        "bad_shape": 1,
    }
    assert poll.flags["duplicate_conflict"] == 1


@pytest.mark.parametrize(
    ("name", "kind", "wait_s"),
    [
        ("vastai", "http_429_retry_after", 7.0),
        ("lium", "http_429_retry_after", 7.0),
        ("runpod", "http_429_windows", 1800.0),
    ],
)
def test_the_wait_that_was_asked_for_arrives(name: str, kind: str, wait_s: float) -> None:
    with a_cloud() as cloud:
        cloud.fail(name, kind)
        assert polled(cloud, name).wait_s == wait_s


def test_a_quota_waits_for_midnight_utc() -> None:
    """By the caller's calendar, not by the market's."""
    with a_cloud(at_s=NIGHT_S - 400 * 86_400.0) as cloud:
        cloud.fail("vastai", "quota")
        wait_s = polled(cloud, "vastai").wait_s
    assert wait_s == pytest.approx(86_400 - time.time() % 86_400, abs=5)


def test_failures_end_after_their_times() -> None:
    with a_cloud() as cloud:
        cloud.fail("lium", "http_503", times=2)
        assert [get(cloud, "/api/public/v1/nodes").status_code for _ in range(4)] == [503, 503, 200, 200]
        assert get(cloud, "/v1/core/stocks").status_code == 200


@pytest.mark.parametrize("name", PLAYED)
def test_a_healed_cloud_answers_well_again(name: str) -> None:
    with a_cloud(machines=150) as cloud:
        cloud.fail(name, "http_503")
        assert polled(cloud, name).outcome == "retry"
        cloud.heal(name)
        assert polled(cloud, name).outcome == "ok"


def test_a_failure_of_one_path_leaves_others_alone_and_is_not_used_up_there() -> None:
    with a_cloud() as cloud:
        cloud.fail("runpod", "graphql_errors", times=1)
        assert polled(cloud, "runpod").outcome == "ok"
        answer = requests.post(f"{cloud.base_url}/graphql", json={"query": "{countryCodes}"}, timeout=10)
    assert answer.json()["data"] is None


def test_a_cut_body_has_a_right_length_and_no_end() -> None:
    with a_cloud() as cloud:
        cloud.fail("vastai", "truncated")
        answer = search(cloud)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    with pytest.raises(ValueError, match=r"line 1"):
        json.loads(answer.content)


def test_a_connection_that_breaks_off_promised_more() -> None:
    with a_cloud() as cloud:
        cloud.fail("lium", "broken_off")
        head, body = raw_exchange(cloud, "/api/public/v1/nodes")
    promised = int(head["content-length"])
    assert 0 < len(body) < promised


def test_a_hanging_request_gets_nothing() -> None:
    with a_cloud() as cloud:
        cloud.fail("lium", "hang")
        with pytest.raises(TimeoutError):
            raw_exchange(cloud, "/api/public/v1/nodes", patience_s=0.5)


def test_a_slow_body_drips() -> None:
    with a_cloud(drip_pause_s=0.05) as cloud:
        cloud.fail("lium", "slow")
        url = f"{cloud.base_url}/api/public/v1/nodes"
        with requests.get(url, stream=True, timeout=10) as answer:
            started_s = time.monotonic()
            pieces = [answer.raw.read1(1000) for _ in range(4)]
            took_s = time.monotonic() - started_s
    assert all(0 < len(piece) <= 16 for piece in pieces)
    assert took_s > 0.1


def test_a_bomb_is_small_until_it_is_unpacked() -> None:
    with a_cloud(flood_bytes=4_000_000) as cloud:
        cloud.fail("lium", "gzip_bomb")
        head, body = raw_exchange(cloud, "/api/public/v1/nodes")
    assert head["content-encoding"] == "gzip"
    assert len(body) < 40_000
    assert len(gzip.decompress(body)) > 4_000_000


def test_a_flood_is_as_long_as_it_says() -> None:
    with a_cloud(flood_bytes=4_000_000) as cloud:
        cloud.fail("lium", "too_large")
        answer = get(cloud, "/api/public/v1/nodes")
    assert int(answer.headers["content-length"]) == len(answer.content) > 4_000_000


@pytest.mark.parametrize(
    ("kind", "status", "header", "value"),
    [
        ("http_429_plain", 429, "content-type", "text/plain; charset=utf-8"),
        ("http_429_retry_after", 429, "retry-after", "7"),
        ("http_500", 500, "content-type", "application/json"),
        ("http_502_html", 502, "content-type", "text/html; charset=utf-8"),
        ("http_503", 503, "content-type", "application/json"),
        ("bad_key", 404, "content-type", "application/json"),
        ("http_400", 400, "content-type", "application/json"),
        ("html_200", 200, "content-type", "text/html; charset=utf-8"),
        ("no_body", 200, "content-length", "0"),
        ("wrong_shape", 200, "content-type", "application/json"),
        ("redirect_elsewhere", 302, "location", f"http://elsewhere.invalid{SEARCH}"),
        ("redirect_loop", 307, "location", SEARCH),
    ],
)
def test_plain_failures_are_what_their_name_says(kind: str, status: int, header: str, value: str) -> None:
    with a_cloud() as cloud:
        cloud.fail("vastai", kind)
        answer = search(cloud)
    assert (answer.status_code, answer.headers[header]) == (status, value)
    assert "retry-after" not in answer.headers or kind == "http_429_retry_after"


@pytest.mark.parametrize("name", [name for name, cloud in CLOUDS.items() if cloud.key_of is not None])
def test_a_key_that_is_echoed_is_the_callers(name: str) -> None:
    with a_cloud() as cloud:
        cloud.fail(name, "echo_key")
        method, path = next(iter(CLOUDS[name].routes))
        headers = {"Authorization": f"Bearer {CANARY}", "api_key": CANARY, "X-API-KEY": CANARY}
        answer = requests.request(method, cloud.base_url + path, headers=headers, json={}, timeout=10)
    assert answer.status_code == CLOUDS[name].bad_key_status
    assert CANARY in answer.text


@pytest.mark.parametrize(
    ("provider", "kind", "times", "message"),
    [
        ("aws", "http_500", None, "provider: 'aws' must be one of vastai, runpod"),
        ("vastai", "fire", None, "kind: 'fire' must be one of http_429_plain"),
        ("lium", "quota", None, "kind: 'quota' must be one of"),
        ("vastai", "graphql_errors", None, "kind: 'graphql_errors' must be one of"),
        ("vastai", "http_500", 0, "times: 0 must be a whole number from 1"),
    ],
)
def test_a_failure_that_does_not_exist_is_refused(provider: str, kind: str, times: int | None, message: str) -> None:
    with pytest.raises(FakeSetupError, match=message):
        a_cloud().fail(provider, kind, times=times)


def test_failures_can_be_written_on_a_command_line() -> None:
    assert parsed_failure("vastai=truncated") == ("vastai", "truncated", None)
    assert parsed_failure("vastai=truncated:3") == ("vastai", "truncated", 3)


@pytest.mark.parametrize(
    "text", ["", "vastai", "vastai=", "=hang", "vastai=hang:", "vastai=hang:x", "vastai=hang:-1"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(FakeSetupError, match="must be PROVIDER=KIND"):
        parsed_failure(text)


def get(cloud: FakeCloud, path: str) -> requests.Response:
    return requests.get(cloud.base_url + path, timeout=10)


def search(cloud: FakeCloud) -> requests.Response:
    return requests.post(cloud.base_url + SEARCH, json={}, timeout=10, allow_redirects=False)


def raw_exchange(cloud: FakeCloud, path: str, *, patience_s: float = 10.0) -> tuple[dict[str, str], bytes]:
    """Headers and all bytes of the body that come before the server closes."""
    host, port = cloud.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=patience_s) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    lines = (line.partition(":") for line in head.decode().splitlines()[1:])
    return {name.lower(): value.strip() for name, _, value in lines}, body
