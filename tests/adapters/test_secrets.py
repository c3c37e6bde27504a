"""A key goes into one header of the requests to its own host, and is found nowhere else, whatever goes wrong."""

import html
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest

from sutler.adapters.base import Poll
from sutler.adapters.config import ProviderConfig, bearer
from sutler.adapters.http import HttpClient, HttpPolicy
from sutler.adapters.registry import PROVIDERS
from tests.adapters.builders import ToldTime, a_client, a_poll, vast_row
from tests.adapters.server import (
    JSON,
    Answer,
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

CANARY = "cnry+7f3a/91c2==d4e5&6b"
TRACES = ("cnry+7f3a", "91c2==d4e5", "d4e5&6b", "cnry%2B7f3a", "91c2%3D")

Said = pytest.CaptureFixture[str]
Logged = pytest.LogCaptureFixture


def escaped_json(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper case": str.upper,
    "escaped slash": lambda key: key.replace("/", "\\/"),
    "escaped unicode": escaped_json,
    "in a URL": lambda key: quote(key, safe=""),
    "in a URL, lower case": lambda key: quote(key, safe="").lower(),
    "in HTML": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "in HTML, hexadecimal": lambda key: "".join(f"&#x{ord(char):X};" for char in key),
}


def traces_in(text: str) -> list[str]:
    plain = html.unescape(text).lower()
    return [trace for trace in TRACES if trace.lower() in plain]


@contextmanager
def nothing_said(caplog: Logged, capfd: Said) -> Iterator[None]:
    """Whatever happens inside leaves no trace in any log at any level, nor on the terminal."""
    caplog.set_level(logging.DEBUG)
    for name in ("urllib3", "urllib3.connectionpool", "requests", "adapters"):
        caplog.set_level(logging.DEBUG, logger=name)
    yield
    out, err = capfd.readouterr()
    logs = "\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)
    assert traces_in(logs + out + err) == []


def echoing(status: int, spelled: Callable[[str], str], content_type: str) -> Callable[[Received], Answer]:
    """A cloud that shows the key it got, in its headers and all over its body."""

    def answer(request: Received) -> Answer:
        key = spelled(request.headers["authorization"].removeprefix("Bearer "))
        body = f'{{"error": "bad key {key}", "msg": "{key}{key}", "offers": [{{"id": "{key}", "k": ["{key}"]}}]}}'
        headers = {"Content-Type": content_type, "X-Echo": key, "X-Key-Kind": f"kind {key}"}
        return Reply(status, body.encode(), headers)

    return answer


def assert_discreet(found: Poll) -> None:
    assert traces_in(repr(found)) == []
    assert all(traces_in(row.raw) == [] for row in found.rejected)


def test_the_key_gets_to_its_cloud() -> None:
    with ScriptedServer([json_reply({"offers": []})]) as server:
        a_poll(server.base_url, key=CANARY)
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {CANARY}"}
    for request in server.requests:
        assert traces_in(request.target + request.body.decode()) == []


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 418, 429, 500, 503])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_cloud_that_repeats_the_key_is_not_repeated(
    status: int, spelling: str, caplog: Logged, capfd: Said
) -> None:
    with nothing_said(caplog, capfd):
        for content_type in (JSON, "text/html"):
            with ScriptedServer(echoing(status, SPELLINGS[spelling], content_type)) as server:
                found = a_poll(server.base_url, key=CANARY)
            assert found.detail or found.rejected
            assert_discreet(found)


def test_the_content_type_may_hold_the_key(caplog: Logged, capfd: Said) -> None:
    with nothing_said(caplog, capfd):
        with ScriptedServer([text_reply("x", headers={"Content-Type": f"text/{CANARY}"})]) as server:
            found = a_poll(server.base_url, key=CANARY)
        assert found.outcome == "bad_body"
        assert "[secret]" in found.detail
        assert_discreet(found)


def test_an_offer_with_the_key_in_its_fields_is_kept_without_it() -> None:
    row = vast_row(f"id-{CANARY}", machine_id=CANARY, geolocation=f"{CANARY}, US")
    with ScriptedServer([json_reply({"offers": [row]})]) as server:
        found = a_poll(server.base_url, key=CANARY)
    assert found.kept == 1
    assert found.offers[0].offer_id == "id-[secret]"
    assert_discreet(found)


@pytest.mark.parametrize(
    "target", ["/there?api_key={key}", "/{key}", "{base}/{key}", "http://other.example/?api_key={key}", "{key}"]
)
@pytest.mark.parametrize("spelling", ["plain", "in a URL"])
def test_a_redirect_that_carries_the_key_is_not_followed(
    target: str, spelling: str, caplog: Logged, capfd: Said
) -> None:
    key = SPELLINGS[spelling](CANARY)
    with nothing_said(caplog, capfd):
        with ScriptedServer(lambda _: redirect_reply(target.format(key=key, base=server.base_url))) as server:
            found = a_poll(server.base_url, key=CANARY)
        assert found.outcome == "config_error"
        assert len(server.requests) == 1
        assert_discreet(found)


def test_broken_connections_tell_nothing(caplog: Logged, capfd: Said) -> None:
    def half(wire: Wire) -> None:
        wire.send(f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nX-Key: {CANARY}\r\n".encode())
        wire.send(f'Content-Length: 500\r\n\r\n{{"offers": ["{CANARY}"'.encode())

    def odd(wire: Wire) -> None:
        wire.send(f"{CANARY} {CANARY}\r\n{CANARY}\r\n\r\n".encode())

    def slow(wire: Wire) -> None:
        wire.wait(5.0)

    hasty = HttpPolicy(read_timeout_s=0.05)
    with nothing_said(caplog, capfd):
        for script in (half, odd, slow):
            with ScriptedServer([Raw(script)]) as server:
                found = a_poll(server.base_url, key=CANARY, policy=hasty)
            assert not found.is_usable
            assert_discreet(found)
        assert_discreet(a_poll(unused_base_url(), key=CANARY))


@pytest.mark.parametrize(
    "key",
    [
        f"{CANARY}\n{CANARY}",
        f"{CANARY}é",
        f"{CANARY} {CANARY}",
        f"{CANARY}\x00",
        f"“{CANARY}”",
        f"{CANARY}\r\nX-A: b",
    ],
)
def test_a_key_that_no_header_can_hold_is_not_shown(key: str, caplog: Logged, capfd: Said) -> None:
    with nothing_said(caplog, capfd):
        found = a_poll(unused_base_url(), key=key)
        assert (found.outcome, found.requests) == ("config_error", 0)
        assert "api_key" in found.detail
        assert_discreet(found)


@pytest.mark.parametrize(
    "base_url",
    [
        f"http://user:{quote(CANARY, safe='')}@127.0.0.1:9",
        f"http://{CANARY}@127.0.0.1:9",
        f"http://user:{CANARY}@127.0.0.1:9",
        f"http://127.0.0.1:9/{CANARY}",
        f"http://127.0.0.1:9?api_key={CANARY}",
        f"http://127.0.0.1:9#{CANARY}",
        f"http://127.0.0.1:{CANARY}",
        f"{CANARY}",
    ],
)
def test_a_base_url_with_a_secret_is_not_shown(base_url: str, caplog: Logged, capfd: Said) -> None:
    with nothing_said(caplog, capfd):
        found = a_poll(base_url, key="")
        assert found.outcome == "config_error"
        assert_discreet(found)
        assert traces_in(repr(ProviderConfig(base_url))) == []


def test_no_repr_shows_a_key() -> None:
    config = ProviderConfig("https://cloud.example", {"api_key": CANARY})
    with a_client("https://cloud.example", headers=bearer(config), secrets=(CANARY,)) as http:
        assert http.headers == {"Authorization": f"Bearer {CANARY}"}
        assert traces_in(repr(http) + repr(config) + str(http) + str(config)) == []


def test_an_exception_of_a_request_does_not_hold_the_key() -> None:
    with a_client(unused_base_url(), headers={"Authorization": f"Bearer {CANARY}"}, secrets=(CANARY,)) as http:
        with pytest.raises(Exception, match="does not answer") as caught:
            http.get("/things", params={"api_key": CANARY})
        assert traces_in(repr(caught.value) + str(caught.value)) == []
        assert caught.value.__suppress_context__, "the cause may hold whole URLs"


def test_texts_too_short_to_be_a_key_are_not_blanked_out_of_the_answer() -> None:
    with ScriptedServer([json_reply({"a": "the offers"})]) as server:
        client = HttpClient(server.base_url, secrets=("a", "the", "offer"), clock=ToldTime().clock)
        with client.session:
            assert client.get("/").data == {"a": "the offers"}


@pytest.mark.parametrize("name", sorted(PROVIDERS))
@pytest.mark.parametrize("status", [200, 401, 429, 500])
def test_no_cloud_that_repeats_its_keys_gets_them_into_a_poll(
    name: str, status: int, caplog: Logged, capfd: Said
) -> None:
    provider = PROVIDERS[name]

    def echo_everything(request: Received) -> Answer:
        return json_reply({"error": str(request.headers), "message": request.body.decode()}, status)

    with nothing_said(caplog, capfd), ScriptedServer(echo_everything) as server:
        found = a_poll(server.base_url, provider, secrets=dict.fromkeys(provider.secrets, CANARY))
        assert not found.is_usable
        assert_discreet(found)
