"""The one HTTP policy: how often and how long a cloud is asked, and where redirects may lead."""

import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from sutler.adapters.errors import FetchError, QuotaError, SetupError, TryLaterError
from sutler.adapters.http import HttpPolicy, Refusal
from tests.adapters.asking import BUSY, HASTY, OK, asked, raw, refused, silent
from tests.adapters.builders import KEY, NOON_EPOCH_S, ToldTime, a_client
from tests.adapters.server import (
    JSON,
    Raw,
    Received,
    Reply,
    ScriptedServer,
    Wire,
    json_reply,
    redirect_reply,
    text_reply,
    unused_base_url,
)

# What is asked


def test_a_request_carries_the_clients_headers_and_those_of_the_call_win() -> None:
    with (
        ScriptedServer([OK]) as server,
        a_client(server.base_url, headers={"Authorization": "Bearer one", "X-Kind": "a"}) as http,
    ):
        http.get("/things", params={"page": "2 & 3"}, headers={"X-Kind": "b"})
    (request,) = server.requests
    assert (request.method, request.path, request.params) == ("GET", "/things", {"page": "2 & 3"})
    assert request.headers["authorization"] == "Bearer one"
    assert request.headers["x-kind"] == "b"
    assert request.headers["accept"] == JSON


def test_a_posted_body_is_json() -> None:
    with ScriptedServer([OK]) as server, a_client(server.base_url) as http:
        assert http.post("/things/", {"limit": 3, "name": "é"}).data == {"fine": True}
    (request,) = server.requests
    assert (request.method, request.target, request.data) == ("POST", "/things/", {"limit": 3, "name": "é"})
    assert request.headers["content-type"] == JSON


def test_passwords_in_the_users_netrc_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login someone password secret-of-netrc\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    _, server = asked(OK)
    assert "authorization" not in server.requests[0].headers


# Retries


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520, 599])
def test_a_busy_cloud_is_asked_three_times_in_all(status: int) -> None:
    error, server = refused(text_reply("busy", status))
    assert isinstance(error, TryLaterError)
    assert (error.outcome, error.http_status) == ("retry", status)
    assert len(server.requests) == 3


def test_an_answer_after_two_refusals_counts() -> None:
    answer, server = asked(BUSY, text_reply("oops", 500), OK)
    assert answer.data == {"fine": True}
    assert len(server.requests) == 3


def test_the_retries_are_those_of_the_poll_and_not_of_each_request() -> None:
    with ScriptedServer([BUSY, OK, BUSY, OK, BUSY, OK]) as server, a_client(server.base_url) as http:
        http.get("/first")
        http.get("/second")
        with pytest.raises(TryLaterError):
            http.get("/third")
        assert http.requests_sent == 5
    assert [request.path for request in server.requests] == ["/first", "/first", "/second", "/second", "/third"]


@pytest.mark.parametrize(("status", "outcome"), [(400, "config_error"), (404, "config_error"), (422, "config_error")])
def test_a_refused_request_is_not_repeated(status: int, outcome: str) -> None:
    error, server = refused(json_reply({"error": "bad", "message": "no such thing"}, status))
    assert isinstance(error, SetupError)
    assert (error.outcome, error.http_status, error.wait_s) == (outcome, status, None)
    assert "bad: no such thing" in str(error)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_not_tried_again(status: int) -> None:
    error, server = refused(json_reply({"error": {"code": "k", "message": "who are you"}}, status))
    assert error.outcome == "auth_error"
    assert "k: who are you" in str(error)
    assert "API key" in str(error)
    assert len(server.requests) == 1


def test_a_cloud_may_give_a_status_a_meaning_of_its_own() -> None:
    def quota(refusal: Refusal) -> FetchError | None:
        assert (refusal.status, refusal.data, refusal.at_s) == (429, {"why": "quota"}, NOON_EPOCH_S)
        return QuotaError("spent", http_status=429, wait_s=3600.0)

    error, server = refused(json_reply({"why": "quota"}, 429), classify=quota)
    assert (error.outcome, error.wait_s) == ("quota", 3600.0)
    assert len(server.requests) == 1


def test_nobody_listening_is_tried_three_times() -> None:
    told = ToldTime()
    with a_client(unused_base_url(), time=told) as http, pytest.raises(TryLaterError) as caught:
        http.get("/things")
    assert http.requests_sent == 3
    assert "does not answer" in str(caught.value)
    assert caught.value.wait_s is not None


def test_an_answer_that_does_not_come_is_waited_for_and_asked_for_again() -> None:
    answer, server = asked(Raw(silent), OK, policy=HASTY)
    assert answer.data == {"fine": True}
    assert len(server.requests) == 2


def test_a_connection_that_is_cut_before_the_answer_is_tried_again() -> None:
    answer, server = asked(Raw(lambda _: None), OK)
    assert answer.data == {"fine": True}
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "head",
    [
        "not HTTP at all",
        "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3",
        "HTTP/1.1 200 OK\n" + "\n".join(f"X-{i}: 1" for i in range(200)),
        "HTTP/1.1 200 OK\nX-Long: " + "x" * 70_000,
    ],
    ids=["no status line", "two lengths", "too many headers", "too long a header"],
)
def test_an_answer_that_is_no_http_is_a_cloud_to_try_later(head: str) -> None:
    error, server = refused(raw(head, b"{}"))
    assert error.outcome == "retry"
    assert len(server.requests) == 3


# How long between two tries


@pytest.mark.parametrize(("chance", "expected"), [(0.0, [0.5, 1.0]), (0.5, [0.75, 1.5]), (1.0, [1.0, 2.0])])
def test_the_wait_doubles_and_varies_between_half_and_all_of_it(chance: float, expected: list[float]) -> None:
    told = ToldTime(chance=chance)
    error, _ = refused(BUSY, told=told)
    assert told.slept == expected
    assert error.wait_s == pytest.approx(16.0 * (0.5 + 0.5 * chance))
    assert not error.wait_is_stated


def test_a_stated_wait_is_slept_in_full() -> None:
    told = ToldTime()
    asked(text_reply("later", 503, {"Retry-After": "7"}), OK, told=told)
    assert told.slept == [7.0]


@pytest.mark.parametrize("stated", ["11", "10.5", "3600"])
def test_a_wait_over_ten_seconds_is_handed_back(stated: str) -> None:
    told = ToldTime()
    error, server = refused(text_reply("later", 429, {"Retry-After": stated}), told=told)
    assert (error.wait_s, error.wait_is_stated) == (float(stated), True)
    assert told.slept == []
    assert len(server.requests) == 1


def test_a_wait_that_outlasts_the_poll_is_handed_back() -> None:
    told = ToldTime()
    error, server = refused(
        text_reply("later", 429, {"Retry-After": "9"}), told=told, policy=HttpPolicy(most_retries=9)
    )
    assert told.slept == [9.0, 9.0, 9.0]
    assert (error.wait_s, error.wait_is_stated) == (9.0, True)
    assert len(server.requests) == 4


def http_date(epoch_s: float) -> str:
    return formatdate(epoch_s, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry-After": "42"}, 42.0),
        ({"Retry-After": " 42 "}, 42.0),
        ({"Retry-After": "42.5"}, 42.5),
        ({"Retry-After": "999999999999999"}, 86_400.0),
        ({"Retry-After": http_date(NOON_EPOCH_S + 90)}, 90.0),
        ({"Retry-After": http_date(NOON_EPOCH_S + 90).removesuffix(" GMT")}, 90.0),
        ({"Retry-After": http_date(NOON_EPOCH_S + 9e7)}, 86_400.0),
        ({"X-RateLimit-Reset": str(int(NOON_EPOCH_S) + 300)}, 300.0),
        ({"X-RateLimit-Reset": "300"}, 300.0),
        ({"X-RateLimit-Reset": str(int(NOON_EPOCH_S) * 1000)}, 86_400.0),
        ({"RateLimit": '"minute";r=0;t=41, "hour";r=12;t=1724'}, 41.0),
        ({"RateLimit": '"minute";r=0;t=41, "hour";r=0;t=1724'}, 1724.0),
        ({"RateLimit": '"hour" ; t=1724 ; r=-3'}, 1724.0),
        ({"Retry-After": "41", "RateLimit": '"minute";r=0;t=41, "day";r=0;t=5000'}, 5000.0),
        ({"Retry-After": "50", "RateLimit": '"minute";r=0;t=41', "X-RateLimit-Reset": "45"}, 50.0),
        ({"Retry-After": "soon", "RateLimit": '"minute";r=0;t=41'}, 41.0),
    ],
)
def test_the_longest_stated_wait_counts(headers: dict[str, str], wait_s: float) -> None:
    error, server = refused(text_reply("later", 429, headers))
    assert error.wait_s == wait_s
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "soon"},
        {"Retry-After": "-5"},
        {"Retry-After": "1e3"},
        {"Retry-After": "9" * 400},
        {"Retry-After": "٣"},
        {"Retry-After": "0"},
        {"Retry-After": http_date(NOON_EPOCH_S - 3600)},
        {"Retry-After": "Sun, 99 Nov 2026 99:99:99 GMT"},
        {"X-RateLimit-Reset": str(int(NOON_EPOCH_S) - 10)},
        {"X-RateLimit-Reset": "midnight"},
        {"RateLimit": '"minute";r=3;t=41'},
        {"RateLimit": "minute"},
        {"RateLimit": '"minute";r=0'},
        {"RateLimit": '"' * 5000},
    ],
)
def test_a_wait_that_says_nothing_leaves_the_clients_own(headers: dict[str, str]) -> None:
    told = ToldTime()
    encoded = {name: value.encode().decode("latin-1") for name, value in headers.items()}
    error, _ = refused(text_reply("later", 429, encoded), told=told)
    assert told.slept == [0.75, 1.5]
    assert (error.wait_s, error.wait_is_stated) == (12.0, False)


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as context:
        context.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
@pytest.mark.parametrize("zone", [" GMT", " -0000", "", " +0000"])
def test_a_date_without_a_zone_is_utc_wherever_the_client_is(zone: str) -> None:
    stated = http_date(NOON_EPOCH_S + 90).removesuffix(" GMT") + zone
    error, _ = refused(text_reply("later", 429, {"Retry-After": stated}))
    assert error.wait_s == 90.0


def test_a_good_answer_may_ask_for_a_pause_too() -> None:
    answer, _ = asked(json_reply({}, headers={"RateLimit": '"minute";r=0;t=33'}))
    assert answer.stated_wait_s == 33.0
    answer, _ = asked(json_reply({}, headers={"RateLimit": '"minute";r=0;t=999999999999999'}))
    assert answer.stated_wait_s == 86_400.0
    answer, _ = asked(OK)
    assert answer.stated_wait_s is None


def test_requests_to_one_path_keep_their_distance() -> None:
    told = ToldTime()
    with ScriptedServer([OK]) as server, a_client(server.base_url, time=told) as http:
        http.get("/slow", least_interval_s=3.5)
        http.get("/other", least_interval_s=3.5)
        told.pass_s(1.0)
        http.get("/slow", least_interval_s=3.5)
    assert told.slept == [2.5]


def test_no_distance_is_kept_beyond_the_end_of_the_poll() -> None:
    told = ToldTime()
    with ScriptedServer([OK]) as server, a_client(server.base_url, time=told) as http:
        told.pass_s(28.0)
        http.get("/slow", least_interval_s=3.5)
        with pytest.raises(TryLaterError, match="no time is left") as caught:
            http.get("/slow", least_interval_s=3.5)
    assert (told.slept, caught.value.wait_s, caught.value.wait_is_stated) == ([], 3.5, False)
    assert len(server.requests) == 1


# The poll's thirty seconds


def test_no_request_starts_after_the_time_of_the_poll() -> None:
    told = ToldTime()
    with ScriptedServer([OK]) as server, a_client(server.base_url, time=told) as http:
        told.pass_s(30.0)
        with pytest.raises(TryLaterError, match="longer than 30 s"):
            http.get("/things")
    assert server.requests == []


def dripping(told: ToldTime, head: str, piece: bytes, pause_s: float) -> Raw:
    """A few bytes, then a pause; the client's budget is spent long before the body is."""

    def write(wire: Wire) -> None:
        wire.send(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        while wire.send(piece) and wire.wait(0.005):
            told.pass_s(pause_s)

    return Raw(write)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        ("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 900000", b" "),
        ("HTTP/1.1 200 OK\nContent-Type: application/json\nTransfer-Encoding: chunked", b"1\r\n \r\n"),
        ("HTTP/1.1 200 OK\nContent-Type: application/json\nConnection: close", b"  "),
    ],
    ids=["with a length", "in chunks", "until the end"],
)
def test_a_body_that_drips_is_given_up_at_the_end_of_the_poll(head: str, piece: bytes) -> None:
    told = ToldTime()
    started = time.monotonic()
    error, server = refused(dripping(told, head, piece, 1.0), told=told)
    assert (error.outcome, error.http_status) == ("retry", 200)
    assert "too slowly" in str(error)
    assert len(server.requests) == 1
    assert time.monotonic() - started < 5.0


def test_a_body_that_stops_is_given_up_after_the_read_timeout() -> None:
    stuck = raw("HTTP/1.1 200 OK\nContent-Type: application/json\nContent-Length: 9", b'{"a"', then_wait_s=5.0)
    answer, server = asked(stuck, OK, policy=HASTY)
    assert answer.data == {"fine": True}
    assert len(server.requests) == 2


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_host_keeps_method_body_and_key(status: int) -> None:
    with (
        ScriptedServer([redirect_reply("/v2/things?kind=new", status), OK]) as server,
        a_client(server.base_url, headers={"Authorization": f"Bearer {KEY}"}) as http,
    ):
        assert http.post("/v1/things", {"limit": 3}).data == {"fine": True}
        assert http.requests_sent == 2
    first, second = server.requests
    assert (second.method, second.path, second.params) == ("POST", "/v2/things", {"kind": "new"})
    assert second.data == first.data == {"limit": 3}
    assert second.headers["authorization"] == f"Bearer {KEY}"


def test_a_redirect_to_another_host_is_refused_and_the_key_never_gets_there() -> None:
    with ScriptedServer([OK]) as other:
        targets = [
            other.base_url,
            other.base_url.replace("http:", ""),
            "https://127.0.0.1/",
            "http://user@127.0.0.1/",
        ]
        for target in targets:
            with (
                ScriptedServer([redirect_reply(f"{target}/stolen", 307)]) as server,
                a_client(server.base_url, headers={"Authorization": f"Bearer {KEY}"}) as http,
                pytest.raises(SetupError, match="another host") as caught,
            ):
                http.post("/things", {})
            assert caught.value.outcome == "config_error"
            assert caught.value.http_status == 307
            assert len(server.requests) == 1
    assert other.requests == []


@pytest.mark.parametrize("target", ["http://[bad/", "http://127.0.0.1:99999/", "ftp://127.0.0.1/", "javascript:1"])
def test_a_redirect_to_nowhere_is_refused(target: str) -> None:
    error, server = refused(redirect_reply(target))
    assert error.outcome == "config_error"
    assert len(server.requests) == 1


def test_redirects_in_circles_end() -> None:
    def elsewhere(request: Received) -> Reply:
        return redirect_reply("/b" if request.path == "/a" else "/a")

    with ScriptedServer(elsewhere) as server, a_client(server.base_url) as http:
        with pytest.raises(SetupError, match="circles"):
            http.get("/a")
        assert http.requests_sent == 4
    assert [request.path for request in server.requests] == ["/a", "/b", "/a", "/b"]


def test_a_redirect_without_a_target_is_no_answer() -> None:
    error, _ = refused(Reply(302, b"moved"))
    assert (error.outcome, error.http_status) == ("config_error", 302)


# Base URLs


@pytest.mark.parametrize(
    "host", ["http://" + "a" * 70 + ".example", "http://..", "http://ho st", "http://%", "http://*"]
)
def test_a_host_that_cannot_exist_is_no_reason_to_crash(host: str) -> None:
    with a_client(host) as http, pytest.raises(FetchError) as caught:
        http.get("/things")
    assert caught.value.outcome in {"config_error", "retry"}
