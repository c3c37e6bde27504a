"""What every cloud that can be polled does alike, walked over the registry: each is asked through the fake's answers.

A cloud comes into this test by being registered and played; there is no line of its own here.
"""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.adapters.base import USUAL_PRICE_BAND, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.errors import Outcome, Reason
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.adapters.fake.wire import Request
from sutler.adapters.gpu_names import known_gpus
from sutler.adapters.polling import poll
from sutler.adapters.registry import PROVIDERS
from sutler.adapters.resellers import OURS
from sutler.adapters.verda import TOKEN_PATH
from tests.adapters.builders import ToldTime, as_document
from tests.adapters.fake.builders import CANARY, NIGHT_S, PLAYED, at
from tests.adapters.server import Answer, Received, Reply, ScriptedServer

FAKE = FakeCloud(Market(seed=1, machines=60), clock=at(NIGHT_S))
# A figure far outside of these is in another unit than its name says.
SANE = {
    "ram_gb": (4, 4096),
    "cpu_cores": (1, 256),
    "disk_gb": (8, 64_000),
    "inet_down_gb_per_s": (0.001, 50),
    "inet_up_gb_per_s": (0.001, 50),
    "inet_down_usd_per_gb": (0, 1),
    "inet_up_usd_per_gb": (0, 1),
    "disk_usd_per_gb_month": (0, 2),
    "intra_machine_gb_per_s": (1, 1000),
    "compute_capability": (5, 15),
    "cuda_max": (11, 15),
    "reliability_fraction": (0.3, 1),
}
OF_EACH_GPU = {"ram_gb", "cpu_cores", "disk_gb"}
ODD = ["", "x" * 300, "\u0000", "\u202e", "\ud800", "1/8", "N/A", "NaN", 10**400, 1e300, -1, 0, 2.5, CANARY, [], {}]
LEAVES = st.none() | st.booleans() | st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=4)

each_cloud = pytest.mark.parametrize("name", PLAYED)


def polled(name: str, spoil: Callable[[str, Any], Any] = lambda _, data: data) -> tuple[Poll, list[Received]]:
    """A poll of the fake's answers, each spoilt on its way, and what was asked."""

    def answer(request: Received) -> Answer:
        found = FAKE.answer(Request(request.method, request.path, request.params, request.headers, request.body))
        body = json.dumps(spoil(request.path, json.loads(found.body))).encode()
        return Reply(found.status, body, found.headers)

    provider = PROVIDERS[name]
    with ScriptedServer(answer) as server:
        config = ProviderConfig(server.base_url, dict.fromkeys(provider.secrets, CANARY))
        return poll(provider, config, clock=ToldTime(epoch_s=NIGHT_S).clock), server.requests


def places_in(value: Any) -> Iterator[tuple[Any, ...]]:
    """Paths to parts of an answer; of a list's rows the first two, since the others are alike."""
    if isinstance(value, dict):
        inner = list(value.items())
    else:
        inner = list(enumerate(value[:2])) if isinstance(value, list) else []
    for key, part in inner:
        yield (key,)
        yield from ((key, *rest) for rest in places_in(part))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def assert_sound(offer: Offer, provider: str) -> None:
    as_document(offer, provider=provider)
    assert offer.gpu in known_gpus()
    assert (offer.available == 0) == (offer.availability_basis == "list")
    assert offer.availability_basis != "lower_bound" or offer.available >= 1
    per_gpu = offer.price_usd_per_hour / offer.gpus
    assert USUAL_PRICE_BAND.least_usd_per_gpu_hour <= per_gpu <= USUAL_PRICE_BAND.most_usd_per_gpu_hour
    assert offer.site is None or offer.site.startswith(f"{provider}/")
    assert offer.machine_gpus is None or (offer.machine_id is not None and offer.machine_gpus >= offer.gpus)
    assert offer.disk_gb is None or offer.disk_included_gb <= offer.disk_gb


@each_cloud
def test_a_good_answer_gives_sound_offers_in_the_right_units(name: str) -> None:
    found, _ = polled(name)
    assert (found.outcome, found.rejected, found.detail) == ("ok", (), "")
    assert len({offer.key for offer in found.offers}) == len(found.offers)
    for offer in found.offers:
        assert_sound(offer, name)
        assert any(offer.feed.startswith(coverage.feed_prefix) for coverage in found.covered)
        for figure, (least, most) in SANE.items():
            stated = getattr(offer, figure)
            share = offer.gpus if figure in OF_EACH_GPU else 1
            assert stated is None or least * share <= stated <= most * share, (figure, stated)


@each_cloud
def test_two_polls_of_one_market_say_the_same(name: str) -> None:
    assert polled(name)[0] == polled(name)[0]


@each_cloud
def test_no_key_is_in_a_url_and_every_request_is_remembered(name: str) -> None:
    found, asked = polled(name)
    assert not any(CANARY in request.target for request in asked)
    assert found.requests == len(asked)


@each_cloud
@settings(max_examples=20)
@given(spoils=st.lists(st.none() | st.tuples(st.integers(0, 10**6), VALUES), min_size=6, max_size=6))
def test_whatever_stands_in_an_answer_a_poll_comes_of_it(name: str, spoils: list[tuple[int, Any] | None]) -> None:
    due = cycle(spoils)

    def spoil(path: str, answer: Any) -> Any:
        change = next(due)
        if path == TOKEN_PATH or change is None:
            return answer
        places = [(), *places_in(answer)]
        return changed(answer, places[change[0] % len(places)], change[1])

    found, _ = polled(name, spoil)
    assert "could not be read" not in found.detail, "a defect of the adapter"
    assert found.outcome in get_args(Outcome)
    assert {row.reason for row in found.rejected} <= set(get_args(Reason))
    assert found.is_usable or (found.offers, found.covered) == ((), ())
    assert not PROVIDERS[name].secrets or CANARY not in repr(found)
    for offer in found.offers:
        assert_sound(offer, name)
    for coverage in found.covered:
        assert coverage.feed_prefix.isprintable()


def test_every_cloud_that_is_polled_directly_is_played() -> None:
    assert set(OURS.values()) <= set(PLAYED)
