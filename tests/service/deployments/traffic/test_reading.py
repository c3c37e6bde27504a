"""One reading of one source: it ends with what was found or with why not, whatever is answered."""

from collections.abc import Callable
from datetime import datetime
from math import isfinite
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.counters import Reading
from sutler.service.deployments.traffic.feed_repository import FeedSource
from sutler.service.deployments.traffic.fetching import ScrapeError
from sutler.service.deployments.traffic.reading import FailedScrape, Scraped, read
from sutler.service.outgoing.addresses import Network
from tests.service.deployments.traffic.builders import NOW, SHAPES, ago, counted, metrics_text

ENGINE: Final = FeedSource("chat", "vllm", "http://10.0.0.5:8000/metrics", 0, 15.0, {})
BEFORE: Final = Reading(ago(15), counted((480, 210)))
NUMBERS: Final = st.sampled_from(["0", "1", "2.5", "5e-324", "1e-300", "1e15", "1e300", "-1", "NaN", "+Inf", "-Inf"])
BOUNDS: Final = st.sampled_from(["-1", "0", "0.5", "1e-320", "100", "1e308", "+Inf", "NaN", "-Inf"])


def answering(content: bytes) -> Callable[..., bytes]:
    def get(url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes:
        return content

    return get


def found_in(content: bytes, before: Reading | None = BEFORE, *, at: datetime = NOW) -> Scraped | FailedScrape:
    return read(ENGINE, SHAPES, before, at=at, allowed=(), get=answering(content))


@st.composite
def engines(draw: st.DrawFn) -> bytes:
    """The right names with any numbers."""
    lines = [f"process_start_time_seconds {draw(NUMBERS)}", f"vllm:request_success_total {draw(NUMBERS)}"]
    for name in ("vllm:request_prompt_tokens", "vllm:request_generation_tokens"):
        bounds = {*draw(st.lists(BOUNDS, max_size=3)), "+Inf"}
        lines += [f'{name}_bucket{{le="{bound}"}} {draw(NUMBERS)}' for bound in sorted(bounds)]
        lines.append(f"{name}_sum {draw(NUMBERS)}")
    return "\n".join(lines).encode()


def test_what_came_since_the_last_reading_is_an_observation_of_the_url() -> None:
    found = found_in(metrics_text(counted((480, 210), (500, 250), (3000, 300))))
    assert isinstance(found, Scraped)
    assert found.observation is not None
    assert (found.observation.model, found.observation.source) == ("chat", ENGINE.url)
    assert (found.observation.started_at, found.observation.ended_at) == (ago(15), NOW)
    assert found.observation.requests == pytest.approx(2)
    assert found.reading == Reading(NOW, counted((480, 210), (500, 250), (3000, 300)))


def test_the_first_reading_is_only_continued() -> None:
    found = found_in(metrics_text(counted((480, 210))), None)
    assert found == Scraped(Reading(NOW, counted((480, 210))), None, {})


def test_an_engine_without_traffic_says_so() -> None:
    found = found_in(metrics_text(counted((480, 210))))
    assert isinstance(found, Scraped)
    assert found.observation is not None
    assert (found.observation.requests, found.observation.buckets) == (0, ())


def test_a_failure_is_remembered_with_the_last_reading() -> None:
    found = found_in(b"")
    assert isinstance(found, FailedScrape)
    assert found.reading == Reading(BEFORE.at, BEFORE.counters, failed_at=NOW)
    assert found_in(b"", None) == FailedScrape(None, found.error)


def test_two_engines_behind_one_address_have_to_be_told_apart() -> None:
    before = Reading(ago(15), counted(*[(480, 210)] * 5, began_s=ago(9000).timestamp()))
    found = found_in(metrics_text(counted((480, 210), began_s=ago(8000).timestamp())), before)
    assert found == FailedScrape(None, "leads to one engine and then to another: give every engine's own address")


def test_what_cannot_be_fetched_is_said_in_one_line() -> None:
    def get(url: str, *, accept: str, allowed: tuple[Network, ...]) -> bytes:
        raise ScrapeError("answers 500")

    found = read(ENGINE, SHAPES, None, at=NOW, allowed=(), get=get)
    assert found == FailedScrape(None, "answers 500")


@given(st.lists(engines(), min_size=1, max_size=3))
def test_whatever_an_engine_says_what_is_observed_can_be_stored(contents: list[bytes]) -> None:
    reading: Reading | None = Reading(ago(60), counted())
    for number, content in enumerate(contents):
        found = found_in(content, reading, at=ago(45 - 15 * number))
        reading = found.reading
        if isinstance(found, Scraped) and found.observation is not None:
            values = [value for bucket in found.observation.buckets for value in bucket]
            assert all(isfinite(value) and value >= 0 for value in (*values, found.observation.requests))


def test_counts_next_to_nothing_break_nothing() -> None:
    """They are no counts of anything, but they are numbers."""
    tiny = counted((480, 210), (9000, 900), finished=5e-324)
    assert isinstance(found_in(metrics_text(tiny), Reading(ago(15), counted())), Scraped | FailedScrape)
