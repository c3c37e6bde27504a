"""What came between two readings of an engine, whatever happens to the engine."""

from dataclasses import replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.counters import AnotherEngineError, Counters, Increase, Reading, increase
from tests.service.deployments.traffic.builders import NOW, SECONDS, a_histogram, ago, counted

LONGEST = timedelta(minutes=10)
SIZES = st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 900)), max_size=20)
QUESTION = (480, 210)
BEGAN_S = ago(9000).timestamp()


def came(
    before: Counters | None, after: Counters, *, at: datetime = NOW, read_at: datetime | None = None, **others: Any
) -> Increase | None:
    """Between a reading a quarter of a minute ago and one now."""
    then = None if before is None else Reading(read_at or ago(15), before, **others)
    return increase(then, at, after, longest=LONGEST)


def test_the_first_reading_tells_nothing_yet() -> None:
    assert came(None, counted(QUESTION)) is None


@given(SIZES, SIZES)
def test_the_second_tells_what_came(first: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    found = came(counted(*first), counted(*first, *more))
    assert found == Increase(ago(15), NOW, counted(*more))


def test_nothing_new_is_told_of_too() -> None:
    found = came(counted(QUESTION), counted(QUESTION))
    assert found is not None
    assert (found.counters.requests, found.counters.latencies()) == (0, {})


@pytest.mark.parametrize("at", [ago(15), ago(16), ago(-9000)])
def test_a_clock_that_stands_or_jumps_tells_nothing(at: datetime) -> None:
    assert came(counted(QUESTION), counted(QUESTION, QUESTION), at=at) is None


def test_after_a_long_gap_counting_begins_anew() -> None:
    before, after = counted(QUESTION), counted(QUESTION, QUESTION)
    assert came(before, after, read_at=NOW - LONGEST) is not None
    assert came(before, after, read_at=NOW - LONGEST - timedelta(seconds=1)) is None


def test_readings_that_failed_in_between_lose_nothing() -> None:
    found = came(counted(QUESTION), counted(QUESTION, QUESTION), read_at=ago(60), failed_at=ago(15))
    assert found == Increase(ago(60), NOW, counted(QUESTION))


@pytest.mark.parametrize("began_s", [None, ago(10).timestamp()])
def test_an_engine_that_began_anew_has_counted_from_zero(began_s: float | None) -> None:
    before = counted(*[QUESTION] * 5, began_s=None if began_s is None else BEGAN_S)
    after = counted(QUESTION, QUESTION, began_s=began_s)
    assert came(before, after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_an_engine_that_could_not_be_asked_was_not_running_then() -> None:
    after = counted(QUESTION, QUESTION)
    found = came(counted(*[QUESTION] * 5), after, read_at=ago(120), failed_at=ago(15))
    assert found == Increase(ago(15), NOW, after, is_from_start=True)
    assert came(counted(*[QUESTION] * 5), after, failed_at=NOW) is None


def test_more_requests_than_before_do_not_hide_that_it_began_anew() -> None:
    after = counted(*[QUESTION] * 9, began_s=ago(10).timestamp())
    assert came(counted(*[QUESTION] * 5, began_s=BEGAN_S), after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_another_size_does_not_hide_that_it_began_anew() -> None:
    """As many requests, and more tokens, but in other bins."""
    after = counted(*[(4000, 800)] * 5)
    assert came(counted(*[QUESTION] * 5), after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_fewer_finished_requests_tell_that_it_began_anew() -> None:
    before, after = counted(QUESTION, finished=5.0), counted(QUESTION, QUESTION, finished=2.0)
    assert came(before, after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_other_bins_are_those_of_another_version() -> None:
    after = replace(counted(QUESTION), prompt=a_histogram([480.0], bounds=(100.0, 1000.0)))
    assert came(counted(QUESTION), after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_two_engines_behind_one_address_are_noticed() -> None:
    """The second has been running for long, and yet has counted less, or began at another time."""
    first = counted(*[QUESTION] * 5, began_s=BEGAN_S)
    for second in (counted(QUESTION, began_s=BEGAN_S - 50), counted(*[QUESTION] * 9, began_s=BEGAN_S + 50)):
        with pytest.raises(AnotherEngineError):
            came(first, second)
        with pytest.raises(AnotherEngineError):
            came(second, first)


def test_counts_that_fall_without_a_new_beginning_are_another_engines() -> None:
    with pytest.raises(AnotherEngineError):
        came(counted(*[QUESTION] * 5, began_s=BEGAN_S), counted(QUESTION, began_s=BEGAN_S))


def test_an_engines_clock_may_differ_from_ours() -> None:
    after = counted(QUESTION, began_s=ago(100).timestamp())
    assert came(counted(*[QUESTION] * 5, began_s=BEGAN_S), after) == Increase(ago(15), NOW, after, is_from_start=True)


@pytest.mark.parametrize("began_s", [inf, 1e300, -inf])
def test_a_beginning_that_is_no_instant_breaks_nothing(began_s: float) -> None:
    after = counted(QUESTION, began_s=began_s)
    assert came(counted(*[QUESTION] * 5), after) == Increase(ago(15), NOW, after, is_from_start=True)


def test_without_a_count_of_the_finished_the_prompts_are_counted() -> None:
    found = came(counted(QUESTION, finished=None), counted(QUESTION, QUESTION, finished=None))
    assert found is not None
    assert found.counters.requests == 1


def test_latencies_are_those_of_what_came() -> None:
    before = counted(ttft=a_histogram([2.0] * 50, bounds=SECONDS), tpot=a_histogram([0.02] * 50, bounds=SECONDS))
    slower = [0.08] * 10
    after = counted(
        QUESTION,
        ttft=a_histogram([2.0] * 50 + [0.2] * 10, bounds=SECONDS),
        tpot=a_histogram([0.02] * 50 + slower, bounds=SECONDS),
    )
    found = came(before, after)
    assert found is not None
    latencies = found.counters.latencies()
    assert set(latencies) == {"ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "tpot_p90_s"}
    assert 0.1 <= latencies["ttft_p50_s"] <= latencies["ttft_p90_s"] <= 0.25
    assert 0.05 <= latencies["tpot_p50_s"] <= latencies["tpot_p90_s"] <= 0.1
    kept = found.counters.latencies({"ttft_p90_s": 0.1, "ttft_p99_s": 0.25, "tpot_p50_s": 0.075, "e2e_p50_s": 9.0})
    assert {name: kept[name] for name in set(kept) - set(latencies)} == {
        "ttft_p90_s_kept_fraction": 0.0,
        "ttft_p99_s_kept_fraction": 1.0,
        "tpot_p50_s_kept_fraction": pytest.approx(0.5),
    }


def test_latencies_that_came_or_went_break_nothing() -> None:
    some = a_histogram([0.2], bounds=SECONDS)
    for before, after in ((some, None), (None, some), (some, a_histogram([0.2], bounds=SECONDS[1:]))):
        found = came(counted(QUESTION, ttft=before), counted(QUESTION, QUESTION, ttft=after))
        assert found == Increase(ago(15), NOW, counted(QUESTION))


@given(st.lists(SIZES, min_size=1, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_over_any_restarts_every_request_is_counted_once(
    parts: list[list[tuple[int, int]]], restarts: list[bool]
) -> None:
    """As long as it says when it began."""
    began_s, total = BEGAN_S, 0.0
    counters = counted(began_s=began_s)
    reading = Reading(ago(15.0 * (len(parts) + 1)), counters)
    running: list[tuple[int, int]] = []
    for part, restarted in zip(parts, restarts, strict=False):
        if restarted:
            began_s, running = reading.at.timestamp() + 1.0, []
        running += part
        at = reading.at + timedelta(seconds=15)
        counters = counted(*running, began_s=began_s)
        found = increase(reading, at, counters, longest=LONGEST)
        assert found is not None
        total += found.counters.requests
        reading = Reading(at, counters)
    assert total == sum(len(part) for part in parts)
