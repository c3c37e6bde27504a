"""One poll of one cloud: whatever goes wrong is an outcome, and a failure speaks of no offer."""

from dataclasses import replace

import pytest

from sutler.adapters import vastai
from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import AnswerError, FetchError, Outcome, QuotaError, SetupError, TryLaterError
from sutler.adapters.http import HttpClient
from sutler.adapters.polling import failed, poll
from sutler.adapters.registry import PROVIDERS
from tests.adapters.builders import KEY, ToldTime, a_poll
from tests.adapters.server import ScriptedServer, json_reply, text_reply, unused_base_url


def three_pages(_: ProviderConfig, http: HttpClient) -> Poll:
    for page in range(3):
        http.get("/pages", params={"page": str(page)})
    return Poll(outcome="ok", requests=http.requests_sent)


PAGED = Provider(
    name="paged",
    title="Paged",
    base_url="https://paged.example",
    fetch=three_pages,
    headers=lambda config: {"X-Key": config.secret("token") or ""},
    secrets=("token",),
)


def test_an_adapter_gets_a_client_for_its_cloud_with_its_key() -> None:
    config_options = {"token": KEY, "unused": "x"}
    with ScriptedServer([json_reply({})]) as server:
        found = poll(PAGED, ProviderConfig(server.base_url, config_options), clock=ToldTime().clock)
    assert (found.outcome, found.requests) == ("ok", 3)
    assert [request.params for request in server.requests] == [{"page": "0"}, {"page": "1"}, {"page": "2"}]
    assert {request.headers["x-key"] for request in server.requests} == {KEY}


def test_a_failure_in_the_middle_counts_the_requests_that_were_made() -> None:
    with ScriptedServer([json_reply({}), text_reply("no", 400)]) as server:
        found = poll(PAGED, ProviderConfig(server.base_url), clock=ToldTime().clock)
    assert (found.outcome, found.requests, found.http_status) == ("config_error", 2, 400)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TryLaterError("busy", http_status=503, wait_s=9.0), "retry"),
        (QuotaError("spent", http_status=429, wait_s=900.0), "quota"),
        (AnswerError("bad_body", "cut", http_status=200), "bad_body"),
        (AnswerError("bad_shape", "odd", http_status=200), "bad_shape"),
        (SetupError("auth_error", "key", http_status=401), "auth_error"),
        (SetupError("config_error", "url"), "config_error"),
    ],
)
def test_a_failed_poll_speaks_of_no_offer(error: FetchError, outcome: Outcome) -> None:
    found = failed(error, requests_sent=2)
    assert found == Poll(
        outcome=outcome,
        detail=str(error),
        http_status=error.http_status,
        wait_s=error.wait_s,
        wait_is_stated=error.wait_s is not None,
        requests=2,
    )
    assert (found.offers, found.covered, found.is_usable) == ((), (), False)


def test_nobody_listening_is_an_outcome() -> None:
    found = a_poll(unused_base_url())
    assert (found.outcome, found.http_status, found.requests) == ("retry", None, 3)
    assert found.wait_s == pytest.approx(12.0)
    assert not found.wait_is_stated, "nobody was there to state anything"


@pytest.mark.parametrize(
    "base_url",
    ["", "nonsense", "https://user:pass@cloud.example", "http://127.0.0.1:1/path", "http://" + "a" * 70 + ".example"],
)
def test_a_wrong_base_url_is_an_outcome(base_url: str) -> None:
    found = a_poll(base_url)
    assert (found.outcome, found.covered) == ("config_error", ())
    assert "base_url" in found.detail


def test_a_wrong_key_or_option_is_an_outcome_before_anything_is_asked() -> None:
    with ScriptedServer([json_reply({"offers": []})]) as server:
        for found in (
            a_poll(server.base_url, key="two words"),
            a_poll(server.base_url, contracts="forever"),
        ):
            assert (found.outcome, found.requests) == ("config_error", 0)
    assert server.requests == []


def test_without_a_key_no_authorization_is_sent() -> None:
    with ScriptedServer([json_reply({"offers": []})]) as server:
        assert a_poll(server.base_url, key="").outcome == "ok"
    assert all("authorization" not in request.headers for request in server.requests)


@pytest.mark.parametrize(
    "error", [KeyError("price"), TypeError("not a row"), ValueError(KEY), RecursionError(), AssertionError()]
)
def test_a_defect_of_an_adapter_is_an_outcome_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def stumble(_: ProviderConfig, http: HttpClient) -> Poll:
        http.get("/things")
        raise error

    broken = replace(PAGED, fetch=stumble)
    with ScriptedServer([json_reply({})]) as server:
        found = a_poll(server.base_url, broken, secrets={"token": KEY})
    assert (found.outcome, found.requests, found.offers, found.covered) == ("bad_shape", 1, (), ())
    assert type(error).__name__ in found.detail
    assert not any(str(value) in found.detail for value in error.args)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("sutler.adapters", "ERROR")
    assert "Traceback" in record.getMessage()
    assert "in stumble" in record.getMessage()
    assert KEY not in caplog.text


def test_a_defect_before_anything_is_asked_is_an_outcome() -> None:
    broken = replace(vastai.PROVIDER, fetch=None)  # type: ignore[arg-type]
    found = a_poll(unused_base_url(), broken)
    assert (found.outcome, found.requests) == ("bad_shape", 0)
    assert "TypeError" in found.detail


def test_an_interrupted_poll_is_interrupted() -> None:
    def interrupted(*_: object) -> Poll:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        a_poll(unused_base_url(), replace(PAGED, fetch=interrupted))


def test_every_registered_cloud_is_known_by_its_own_name() -> None:
    assert "vastai" in PROVIDERS
    for name, provider in PROVIDERS.items():
        assert provider.name == name
        assert ProviderConfig(provider.base_url).checked_base_url() == provider.base_url
        assert provider.least_poll_interval_s <= provider.poll_interval_s
