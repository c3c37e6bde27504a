"""One attempt, against real receivers on loopback."""

import logging
import socket

import pytest

from sutler.service.webhooks.sending import Attempt, Sender
from tests.adapters.server import Raw, Received, Reply, ScriptedServer, Wire, redirect_reply, unused_base_url
from tests.service.webhooks.builders import LOOPBACK, NOWHERE, SECRET, a_message, is_signed

HEAD = b"HTTP/1.1 200 OK\r\n"


def sent(server: ScriptedServer, path: str = "/hook", **others: str) -> Attempt:
    return Sender()(a_message(server.base_url + path, **others), allowed=LOOPBACK)


def raw(content: bytes) -> Raw:
    def write(wire: Wire) -> None:
        wire.send(content)

    return Raw(write)


def test_an_event_is_posted_as_it_is_and_signed() -> None:
    body = '{"type":"plan.issued","data":{"deployment":"größe"}}'
    with ScriptedServer([Reply(204)]) as server:
        sender = Sender(epoch_s=lambda: 1_700_000_000.9)
        attempt = sender(a_message(f"{server.base_url}/hook?a=%20b", id="one-id", body=body), allowed=LOOPBACK)
    (request,) = server.requests
    assert (attempt.ok, attempt.status_code, attempt.error) == (True, 204, None)
    assert (request.method, request.target, request.body) == ("POST", "/hook?a=%20b", body.encode())
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == server.base_url.removeprefix("http://")
    assert (request.headers["webhook-id"], request.headers["webhook-timestamp"]) == ("one-id", "1700000000")
    assert is_signed(request)


def test_a_changed_body_or_another_secret_fails_the_receivers_check() -> None:
    with ScriptedServer([Reply(204)]) as server:
        sent(server)
    (request,) = server.requests
    assert is_signed(request)
    assert not is_signed(Received(request.method, request.target, request.headers, request.body + b" "))
    assert not is_signed(request, secret="whsec_" + "A" * 32)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_success(status: int) -> None:
    with ScriptedServer([Reply(status)]) as server:
        assert sent(server).ok


@pytest.mark.parametrize("status", [400, 401, 404, 405, 429, 500, 502, 503, 504])
def test_any_other_answer_is_a_failure(status: int) -> None:
    with ScriptedServer([Reply(status, b"the receiver's own words")]) as server:
        attempt = sent(server)
    assert (attempt.ok, attempt.status_code, attempt.error) == (False, status, f"answers {status}")
    assert not attempt.is_unwanted


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(status: int) -> None:
    with ScriptedServer([Reply(200)]) as inner, ScriptedServer([redirect_reply(inner.base_url, status)]) as server:
        attempt = sent(server)
    assert (attempt.ok, attempt.status_code) == (False, status)
    assert "redirects are not followed" in (attempt.error or "")
    assert (len(server.requests), inner.requests) == (1, [])


def test_410_says_that_no_more_events_are_wanted() -> None:
    with ScriptedServer([Reply(410)]) as server:
        attempt = sent(server)
    assert attempt.is_unwanted
    assert not attempt.ok


def test_a_stated_wait_is_understood() -> None:
    replies = [
        Reply(503, headers={"Retry-After": "120"}),
        Reply(503),
        Reply(500, headers={"X-RateLimit-Reset": "60"}),
    ]
    with ScriptedServer(replies) as server:
        assert [sent(server).wait_s for _ in replies] == [120.0, None, None]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([Reply(200)]) as proxy, ScriptedServer([Reply(200)]) as server:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.base_url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert sent(server).ok
    assert (len(server.requests), proxy.requests) == (1, [])


class Names:
    """A resolver that says something else every time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def port_of(server: ScriptedServer) -> int:
    return int(server.base_url.rpartition(":")[2])


def test_a_name_is_looked_up_once_and_the_checked_address_is_used() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    with ScriptedServer([Reply(200)]) as server:
        port = port_of(server)
        attempt = Sender(lookup=names)(a_message(f"http://Rebinding.Example:{port}/"), allowed=LOOPBACK)
    assert attempt.ok
    assert names.asked == [("rebinding.example", port)]
    assert server.requests[0].headers["host"] == f"rebinding.example:{port}"


def test_a_name_that_now_leads_elsewhere_is_refused_at_the_next_attempt() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"])
    with ScriptedServer([Reply(200)]) as server:
        message = a_message(f"http://rebinding.example:{port_of(server)}/")
        attempts = [Sender(lookup=names)(message, allowed=LOOPBACK) for _ in range(2)]
    assert [attempt.ok for attempt in attempts] == [True, False]
    assert "rebinding.example (169.254.169.254)" in (attempts[1].error or "")
    assert len(server.requests) == 1


@pytest.mark.parametrize("addresses", [["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["127.0.0.1", "::1"]])
def test_nothing_is_sent_where_one_address_of_several_is_not_allowed(addresses: list[str]) -> None:
    with ScriptedServer([Reply(200)]) as server:
        message = a_message(f"http://mixed.example:{port_of(server)}/")
        attempt = Sender(lookup=Names(addresses))(message, allowed=LOOPBACK)
    assert (attempt.ok, attempt.status_code, server.requests) == (False, None, [])


def test_what_was_allowed_when_it_was_registered_may_no_longer_be() -> None:
    with ScriptedServer([Reply(200)]) as server:
        attempt = Sender()(a_message(server.base_url), allowed=NOWHERE)
    assert (attempt.ok, server.requests) == (False, [])
    assert "SUTLER_OUTGOING_NETWORKS" in (attempt.error or "")


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    with ScriptedServer([Reply(200)]) as server:
        message = a_message(f"http://two.example:{port_of(server)}/")
        assert Sender(lookup=Names(["127.0.0.2", "127.0.0.1"]))(message, allowed=LOOPBACK).ok


def test_nobody_listening_is_a_failure() -> None:
    attempt = Sender()(a_message(unused_base_url()), allowed=LOOPBACK)
    assert (attempt.ok, attempt.status_code, attempt.error) == (False, None, "no connection: Connection refused")


def test_a_name_that_does_not_exist_is_a_failure() -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    attempt = Sender(lookup=unknown)(a_message(), allowed=NOWHERE)
    assert (attempt.ok, attempt.error) == (False, "the name cannot be resolved: correct it, or try again later")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.6 hunter2\r\n", "no HTTP answer (BadStatusLine)"),
        (b"HTTP/1.1 hunter2 OK\r\n\r\n", "no HTTP answer (BadStatusLine)"),
        (b"\x16\x03\x01\x02\x00hunter2", "no HTTP answer (BadStatusLine)"),
        (b"", "no HTTP answer (RemoteDisconnected)"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "no HTTP answer (LineTooLong)"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200, "no HTTP answer (HTTPException)"),
    ],
)
def test_what_is_not_http_is_a_failure_and_not_repeated(answer: bytes, error: str) -> None:
    with ScriptedServer([raw(answer)]) as server:
        attempt = sent(server)
    assert (attempt.ok, attempt.status_code, attempt.error) == (False, None, error)


@pytest.mark.parametrize(
    "body",
    [b"Content-Length: 1000\r\n\r\nshort", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: x\r\n\r\n"],
)
def test_the_answers_body_means_nothing(body: bytes) -> None:
    with ScriptedServer([raw(HEAD + body)]) as server:
        assert sent(server).ok


def test_no_secret_is_in_results_representations_or_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    message = a_message(unused_base_url() + "/hunter2", body='{"hunter2":1}')
    with ScriptedServer([Reply(500, b"hunter2", {"X-Hunter2": "hunter2"}), Reply(200, b"hunter2")]) as server:
        attempts = [sent(server, path="/hunter2", body='{"hunter2":1}') for _ in range(2)]
    attempts += [Sender()(message, allowed=LOOPBACK), Sender()(message, allowed=NOWHERE)]
    shown = f"{attempts} {message!r} {caplog.text}"
    assert SECRET not in shown
    assert "hunter2" not in shown


def test_a_message_has_the_same_id_and_body_at_every_attempt_but_its_own_time() -> None:
    times = iter([1000.0, 1000.0, 2000.0, 2000.0])
    with ScriptedServer([Reply(500)]) as server:
        sender = Sender(epoch_s=lambda: next(times))
        for _ in range(2):
            sender(a_message(server.base_url), allowed=LOOPBACK)
    first, second = server.requests
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    assert [request.headers["webhook-timestamp"] for request in (first, second)] == ["1000", "2000"]
    assert is_signed(first)
    assert is_signed(second)
