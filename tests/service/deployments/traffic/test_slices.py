"""Single requests as windows, and windows as they are."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.schemas import ObservationDocument
from sutler.service.deployments.traffic.slices import observations_of
from sutler.service.deployments.traffic.window import Observation
from sutler.service.documents.validation import validate
from tests.service.deployments.traffic.builders import NOW, ago, traffic_of

TIMES = st.lists(st.integers(0, 600_000).map(lambda ms: ago(ms / 1000)), min_size=1, max_size=40)


def sliced(*requests: tuple[datetime, float, float], told_until: datetime | None = None) -> list[Observation]:
    entries = [{"at": at.isoformat(), "input_tokens": i, "output_tokens": o} for at, i, o in requests]
    document = validate(ObservationDocument, {"model": "chat", "requests": entries})
    return observations_of(document, told_until=told_until)


def windowed(**others: Any) -> Observation:
    given: dict[str, Any] = {
        "model": "chat",
        "source": "gateway",
        "observed_at": "2026-11-20T12:00:00Z",
        "window_s": 60,
        "buckets": [{"input_tokens": 480, "output_tokens": 210, "requests": 640}],
    }
    [found] = observations_of(validate(ObservationDocument, {**given, **others}), told_until=None)
    return found


def test_a_window_of_buckets_is_taken_as_it_is() -> None:
    assert windowed() == Observation("chat", "gateway", ago(60), NOW, 640, ((480, 210, 640),))


def test_a_time_zone_makes_no_other_instant() -> None:
    assert windowed(observed_at="2026-11-20T13:30:00+01:30") == windowed()


@pytest.mark.parametrize("buckets", [[], [{"input_tokens": 480, "output_tokens": 210, "requests": 0}]])
def test_a_window_without_requests_tells_that_there_were_none(buckets: list[Any]) -> None:
    found = windowed(buckets=buckets)
    assert (found.requests, found.buckets, found.ended_at) == (0, (), NOW)


def test_requests_of_ten_seconds_are_one_slice() -> None:
    [found] = sliced((ago(9), 500, 250), (ago(2), 500, 250), (ago(1), 500, 250))
    assert (found.started_at, found.ended_at, found.requests) == (ago(10), ago(1), 3)


def test_between_slices_there_is_no_gap() -> None:
    first, second = sliced((ago(300), 500, 250), (ago(2), 500, 250))
    assert (first.started_at, first.ended_at) == (ago(300), ago(290))
    assert (second.started_at, second.ended_at) == (ago(290), ago(2))


def test_a_pause_of_more_than_ten_minutes_is_a_gap() -> None:
    first, second = sliced((ago(1000), 500, 250), (ago(2), 500, 250))
    assert (first.ended_at, second.started_at) == (ago(990), ago(10))


def test_what_comes_continues_what_was_told_before() -> None:
    [found] = sliced((ago(2), 500, 250), told_until=ago(100))
    assert (found.started_at, found.ended_at) == (ago(100), ago(2))
    [in_the_same_slice] = sliced((ago(2), 500, 250), told_until=ago(4))
    assert (in_the_same_slice.started_at, in_the_same_slice.ended_at) == (ago(4), ago(2))
    [after_long] = sliced((ago(2), 500, 250), told_until=ago(1000))
    assert after_long.started_at == ago(10)


def test_similar_requests_share_a_bucket_that_has_their_means() -> None:
    [found] = sliced((ago(3), 510, 250), (ago(2), 490, 230), (ago(1), 3000, 250))
    # 510 is above 2**9 and 490 below: two bins, though close.
    assert sum(requests for _, _, requests in found.buckets) == 3
    [alike] = sliced((ago(3), 520, 250), (ago(2), 540, 230))
    assert alike.buckets == ((530, 240, 2),)


def test_a_request_without_tokens_is_one_too() -> None:
    [found] = sliced((ago(1), 0, 0))
    assert found.buckets == ((0, 0, 1),)


def test_the_order_of_requests_does_not_matter() -> None:
    requests = [(ago(seconds), 100.0 * seconds, 50.0) for seconds in (1, 15, 7, 33, 21)]
    assert sliced(*requests) == sliced(*reversed(requests))


@given(TIMES)
def test_slices_hold_every_request_once_and_do_not_overlap(times: list[datetime]) -> None:
    found = sliced(*((at, 500, 250) for at in times))
    assert sum(o.requests for o in found) == len(times)
    assert all(o.started_at <= o.ended_at for o in found)
    assert all(before.ended_at <= after.started_at for before, after in pairwise(found))
    assert found[-1].ended_at == max(times)


@given(TIMES, st.integers(0, 1_200_000))
def test_nothing_that_was_told_before_is_told_again(times: list[datetime], before_ms: int) -> None:
    told_until = min(times) - timedelta(milliseconds=before_ms)
    found = sliced(*((at, 500, 250) for at in times), told_until=told_until)
    assert found[0].started_at >= told_until
    assert sum(o.requests for o in found) == len(times)


@given(st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)), min_size=1, max_size=30))
def test_buckets_keep_the_tokens(sizes: list[tuple[float, float]]) -> None:
    [found] = sliced(*((ago(1), i, o) for i, o in sizes))
    assert sum(i * n for i, _, n in found.buckets) == pytest.approx(sum(i for i, _ in sizes))
    assert sum(o * n for _, o, n in found.buckets) == pytest.approx(sum(o for _, o in sizes))
    assert found.requests == len(sizes)


def test_requests_that_are_sent_as_they_come_have_their_rate() -> None:
    told: list[Observation] = []
    for number in reversed(range(480)):
        told_until = told[-1].ended_at if told else None
        told += sliced((ago(0.25 * number), 500, 250), told_until=told_until)
    assert traffic_of(told).rate_rps == pytest.approx(4, rel=0.02)


def test_instants_are_in_utc() -> None:
    at = ago(1).astimezone(timezone(timedelta(hours=-7)))
    [found] = sliced((at, 500, 250))
    assert (found.started_at.tzinfo, found.ended_at.tzinfo) == (UTC, UTC)
