"""What every further cloud does alike when its API fails: no offer is made up, no key is shown."""

import pytest

from sutler.adapters import hyperstack, lambda_cloud, lium, shadeform, verda
from sutler.adapters.base import Poll
from sutler.adapters.config import Provider
from tests.adapters.builders import KEY
from tests.adapters.cloud_bodies import MARKET_PATHS, PLAIN_BODIES, TOKEN, poll_of_cloud
from tests.adapters.server import Raw, Received, Reply, Wire, json_reply, text_reply

CLOUDS = [lium.PROVIDER, lambda_cloud.PROVIDER, verda.PROVIDER, hyperstack.PROVIDER, shadeform.PROVIDER]
WITH_A_KEY = [provider for provider in CLOUDS if provider.needs_key]

each_cloud = pytest.mark.parametrize("provider", CLOUDS, ids=lambda provider: provider.name)
each_cloud_with_a_key = pytest.mark.parametrize("provider", WITH_A_KEY, ids=lambda provider: provider.name)


def poll_when_the_market_is(provider: Provider, answer: object) -> Poll:
    return poll_of_cloud(provider, {MARKET_PATHS[provider.name]: answer})


def breaks_off(wire: Wire) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"
    wire.send(head + b'{"nodes": [')


@each_cloud
def test_a_plain_answer_gives_an_offer(provider: Provider) -> None:
    found = poll_of_cloud(provider)
    assert (found.outcome, found.kept > 0, found.http_status) == ("ok", True, 200)
    assert found.covered[0].rows_read == 1


@each_cloud
@pytest.mark.parametrize("data", [None, {}, "no market", 7, {"data": []}, {"nodes": {}, "stocks": None}])
def test_another_shape_is_bad_shape_and_covers_nothing(provider: Provider, data: object) -> None:
    found = poll_when_the_market_is(provider, data)
    assert (found.outcome, found.offers, found.covered) == ("bad_shape", (), ())


@each_cloud
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Reply(200, b'{"nodes": [{"id": "a",', {"Content-Type": "application/json"}), id="cut short"),
        pytest.param(Raw(breaks_off), id="broken off"),
        pytest.param(text_reply("<html>checking your browser</html>"), id="HTML"),
    ],
)
def test_what_is_no_json_is_bad_body_and_covers_nothing(provider: Provider, answer: object) -> None:
    found = poll_when_the_market_is(provider, answer)
    assert (found.outcome, found.offers, found.covered) == ("bad_body", (), ())


@each_cloud
def test_a_stated_wait_is_handed_back(provider: Provider) -> None:
    found = poll_when_the_market_is(provider, json_reply({"message": "slow down"}, 429, {"Retry-After": "140"}))
    assert (found.outcome, found.wait_s, found.http_status, found.covered) == ("retry", 140.0, 429, ())


@each_cloud
def test_a_failing_service_is_tried_again(provider: Provider) -> None:
    answers = [text_reply("<html>bad gateway</html>", 502), PLAIN_BODIES[provider.name][MARKET_PATHS[provider.name]]]
    found = poll_of_cloud(provider, {MARKET_PATHS[provider.name]: lambda _: answers.pop(0)})
    assert (found.outcome, found.kept > 0, answers) == ("ok", True, [])


@each_cloud_with_a_key
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_the_setting_and_not_the_key(provider: Provider, status: int) -> None:
    refusal = json_reply({"error": {"code": "forbidden", "message": f"bad key {KEY}"}}, status)
    found = poll_when_the_market_is(provider, refusal)
    assert (found.outcome, found.http_status, found.covered) == ("auth_error", status, ())
    for secret in provider.secrets:
        assert f"SUTLER_{provider.name}_{secret}".upper() in found.detail
    assert KEY not in found.detail


@each_cloud_with_a_key
def test_without_a_key_nothing_is_asked(provider: Provider) -> None:
    found = poll_of_cloud(provider, secrets={})
    assert (found.outcome, found.requests) == ("auth_error", 0)
    assert f"SUTLER_{provider.name}_{provider.secrets[-1]}".upper() in found.detail


@each_cloud
def test_keys_never_reach_what_is_stored(provider: Provider) -> None:
    """The cloud sends every secret it knows back, in a row that is no offer."""
    path = MARKET_PATHS[provider.name]
    echoed = [{"name": f"{KEY} {TOKEN}"}]
    bodies = {
        "lium": {"nodes": echoed},
        "lambda": {"data": {"gpu_1x": {"instance_type": {"description": f"{KEY} {TOKEN}"}}}},
        "verda": echoed,
        "hyperstack": {"stocks": echoed},
        "shadeform": {"instance_types": echoed},
    }
    found = poll_of_cloud(provider, {path: bodies[provider.name]})
    assert len(found.rejected) == 1
    shown = repr(found)
    if provider.needs_key:
        assert KEY not in shown
    if provider.name == "verda":
        assert TOKEN not in shown


@each_cloud
def test_no_key_is_in_any_url(provider: Provider) -> None:
    asked: list[Received] = []
    poll_of_cloud(provider, seen=asked.append)
    assert {request.path for request in asked} == set(PLAIN_BODIES[provider.name])
    assert not any(KEY in request.target or TOKEN in request.target for request in asked)
