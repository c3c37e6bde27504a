"""One GET, against real servers on loopback."""

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from sutler.service.deployments.traffic.fetching import LIMITS, MOST_BYTES, Fetcher, ScrapeError
from sutler.service.outgoing.addresses import Network
from tests.adapters.server import Raw, Reply, ScriptedServer, Wire, redirect_reply, unused_base_url
from tests.service.webhooks.builders import LOOPBACK, NOWHERE, QUICK

OURS: Fetcher = Fetcher()
DRIP_S = 0.02


def fetched(url: str, *, fetcher: Fetcher = OURS, allowed: tuple[Network, ...] = LOOPBACK) -> bytes:
    return fetcher.get(url, accept="text/plain", allowed=allowed)


def objection_to(url: str, *, fetcher: Fetcher = OURS, allowed: tuple[Network, ...] = LOOPBACK) -> str:
    with pytest.raises(ScrapeError) as refused:
        fetched(url, fetcher=fetcher, allowed=allowed)
    return str(refused.value)


def dripping(start: bytes, drop: bytes) -> Callable[[Wire], None]:
    def drip(wire: Wire) -> None:
        going_on = wire.send(start)
        while going_on:
            going_on = wire.send(drop) and wire.wait(DRIP_S)

    return drip


def test_the_body_of_a_200_is_what_is_read() -> None:
    with ScriptedServer([Reply(200, b"up 1\n")]) as server:
        assert fetched(f"{server.base_url}/metrics?a=%20b") == b"up 1\n"
    (request,) = server.requests
    assert (request.method, request.target, request.body) == ("GET", "/metrics?a=%20b", b"")
    assert request.headers["accept"] == "text/plain"
    assert request.headers["host"] == server.base_url.removeprefix("http://")
    assert not {"authorization", "cookie"} & set(request.headers)


@pytest.mark.parametrize("chunks", [b"5\r\nup 1\n\r\n0\r\n\r\n", b"2\r\nup\r\n3\r\n 1\n\r\n0\r\n\r\n"])
def test_a_body_may_come_in_chunks(chunks: bytes) -> None:
    def write(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)

    with ScriptedServer([Raw(write)]) as server:
        assert fetched(server.base_url) == b"up 1\n"


@pytest.mark.parametrize("status", [204, 400, 404, 429, 500, 503])
def test_any_other_status_is_an_objection_without_the_answer(status: int) -> None:
    with ScriptedServer([Reply(status, b"" if status == 204 else b"secret words")]) as server:
        assert objection_to(server.base_url) == f"answers {status}"


@pytest.mark.parametrize("status", [401, 403])
def test_an_engine_that_asks_for_credentials_is_given_none(status: int) -> None:
    with ScriptedServer([Reply(status)]) as server:
        assert objection_to(server.base_url) == f"answers {status}: give a URL that asks for no credentials"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with ScriptedServer([Reply(200)]) as inner, ScriptedServer([redirect_reply(inner.base_url, status)]) as server:
        said = objection_to(server.base_url)
    assert said == f"answers {status}: redirects are not followed; give the URL that is meant"
    assert inner.requests == []


def test_an_answer_of_the_most_bytes_is_read_and_one_more_is_too_many() -> None:
    fetcher = replace(OURS, most_bytes=1_000)
    with ScriptedServer([Reply(200, b"x" * 1_000), Reply(200, b"x" * 1_001)]) as server:
        assert len(fetched(server.base_url, fetcher=fetcher)) == 1_000
        assert objection_to(server.base_url, fetcher=fetcher) == "the answer is larger than 1,000 bytes"


def test_an_answer_without_end_is_left_where_it_is_too_large() -> None:
    with ScriptedServer([Raw(dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1_000_000))]) as server:
        assert objection_to(server.base_url) == f"the answer is larger than {MOST_BYTES:,} bytes"


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
)
def test_an_answer_that_drips_is_over_in_time(start: bytes, drop: bytes) -> None:
    with ScriptedServer([Raw(dripping(start, drop))]) as server:
        assert objection_to(server.base_url, fetcher=replace(OURS, limits=QUICK)) == "no whole answer within 0.3 s"


def test_a_server_that_says_nothing_is_left() -> None:
    def say_nothing(wire: Wire) -> None:
        wire.wait(30.0)

    with ScriptedServer([Raw(say_nothing)]) as server:
        assert objection_to(server.base_url, fetcher=replace(OURS, limits=QUICK)) == "no whole answer within 0.3 s"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_said_to_be_none(answer: bytes) -> None:
    def write(wire: Wire) -> None:
        wire.send(answer)

    with ScriptedServer([Raw(write)]) as server:
        assert objection_to(server.base_url).startswith(
            ("no HTTP answer (", "no connection: ", "the answer ended early")
        )


def test_where_nobody_listens_there_is_no_connection() -> None:
    assert objection_to(unused_base_url()) == "no connection: Connection refused"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/metrics",
        "http://localhost:8000/metrics",
        "http://[::1]:8000/metrics",
        "http://2130706433:8000/metrics",
        "http://10.0.0.5:8000/metrics",
        "http://169.254.169.254/latest/meta-data/",
    ],
)
def test_a_private_address_is_not_asked(url: str) -> None:
    assert "SUTLER_OUTGOING_NETWORKS" in objection_to(url, allowed=NOWHERE)


def test_an_allowed_network_allows_no_other() -> None:
    assert "(private)" in objection_to("http://10.0.0.5:8000/", allowed=LOOPBACK)


def test_a_name_that_leads_to_a_private_address_is_not_asked() -> None:
    with ScriptedServer([Reply(200)]) as server:
        port = server.base_url.rpartition(":")[2]
        fetcher = replace(OURS, lookup=lambda host, port: ["127.0.0.1"])
        said = objection_to(f"http://engine.example:{port}/metrics", fetcher=fetcher, allowed=NOWHERE)
        assert "loopback" in said
        assert fetched(f"http://engine.example:{port}/metrics", fetcher=fetcher) == b""
    assert [request.headers["host"] for request in server.requests] == [f"engine.example:{port}"]


def test_a_name_that_nobody_knows_says_so() -> None:
    def lookup(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    said = objection_to("http://engine.example/", fetcher=replace(OURS, lookup=lookup))
    assert said == "the name cannot be resolved: correct it, or try again later"


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://host/", "http://", "http://a b/", "http://h:22/"])
def test_what_is_no_such_url_is_not_asked(url: str) -> None:
    assert objection_to(url)


def test_no_password_or_path_of_the_url_is_in_the_objection() -> None:
    said = objection_to("http://user:hunter2@10.0.0.5/secret-path?key=hunter3", allowed=NOWHERE)
    assert not [word for word in ("hunter2", "hunter3", "secret-path") if word in said]


def test_a_proxy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([Reply(200, b"proxy")]) as proxy, ScriptedServer([Reply(200, b"engine")]) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        assert fetched(server.base_url) == b"engine"
    assert proxy.requests == []


def test_nobody_is_waited_for_longer_than_between_two_readings() -> None:
    assert LIMITS.whole_s <= 5.0
