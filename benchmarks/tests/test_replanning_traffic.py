"""The day's traffic keeps the shape, the mix and the number of requests of what was recorded."""

import numpy as np
import pytest

from benchmarks.day.traffic import (
    BLUR_S,
    CODE_FRACTIONS,
    DAY_S,
    MOST_REPEATS,
    Trace,
    are_there,
    bucketed,
    day_of,
    read_traces,
    shaped,
)
from sutler.service.documents.traces import bucket_trace


def trace(*, seconds: int = 3600, busy_half: int = 1) -> Trace:
    """One request a second, and four in one of the halves; long outputs follow long inputs every third time."""
    at = [float(s) for s in range(seconds) for _ in range(4 if s * 2 // seconds == busy_half else 1)]
    number = np.arange(len(at))
    return Trace(np.array(at), np.array(100.0 + 10.0 * (number % 7)), np.array(10.0 + number % 3))


def test_the_same_seed_gives_the_same_day_and_another_seed_another() -> None:
    one, same, other = (day_of(trace(), mean_rps=5.0, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.requests, same.requests)
    assert not np.array_equal(one.requests, other.requests)


def test_a_day_has_the_requests_that_were_asked_for() -> None:
    day = day_of(trace(), mean_rps=5.0, seed=1)
    assert day.requests.sum() == pytest.approx(5.0 * DAY_S, rel=0.01)
    assert sum(bucket.rate_rps for bucket in day.buckets) == pytest.approx(5.0)


def test_the_hour_is_stretched_to_the_day() -> None:
    day = day_of(trace(busy_half=1), mean_rps=5.0, seed=1)
    quiet = day.rates_rps(0.0, DAY_S / 2 - 2 * BLUR_S).sum()
    busy = day.rates_rps(DAY_S / 2 + 2 * BLUR_S, DAY_S).sum()
    assert busy / quiet == pytest.approx(4.0, rel=0.03)


def test_the_day_begins_and_ends_with_all_of_its_traffic() -> None:
    """Blurring must not leave half of the requests before the day's first and after its last moment."""
    steady = Trace(np.arange(3600.0), np.full(3600, 100.0), np.full(3600, 10.0))
    day = day_of(steady, mean_rps=10.0, seed=1)
    assert day.rates_rps(0.0, BLUR_S).sum() == pytest.approx(10.0, rel=0.06)
    assert day.rates_rps(DAY_S - BLUR_S, DAY_S).sum() == pytest.approx(10.0, rel=0.06)


def test_a_rate_is_the_requests_of_its_time_over_its_length() -> None:
    day = day_of(trace(), mean_rps=5.0, seed=1)
    assert day.rates_rps(600.0, 720.0).tolist() == ((day.requests[10] + day.requests[11]) / 120.0).tolist()


def services() -> tuple[Trace, Trace]:
    """Chats with 10 tokens out and code with 1; the load of each quadruples in the second half of its hour."""
    chats, code = trace(), trace()
    return chats, Trace(code.at_s, code.input_tokens, np.full_like(code.output_tokens, 1.0))


def is_code(made: Trace) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return made.output_tokens < 2


def test_another_seed_gives_another_shape_and_the_same_one_the_same() -> None:
    one, same, another = (shaped(*services(), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.at_s, same.at_s)
    assert not np.array_equal(one.at_s, another.at_s)


def test_each_service_keeps_the_swing_of_its_hour_as_often_as_that_is_in_the_day() -> None:
    """However it is turned, a quarter of the time at least is quiet, and the busy half has four times as much."""
    found = set()
    for seed in range(20):
        made = shaped(*services(), seed=seed)
        for service in (made.at_s[is_code(made)], made.at_s[~is_code(made)]):
            counts = np.bincount((service / made.length_s * 60).astype(int).clip(0, 59), minlength=60)
            is_busy = counts > counts.mean()
            found.add(int((is_busy != np.roll(is_busy, 1)).sum()) // 2)
            assert counts[is_busy].mean() == pytest.approx(4 * counts[~is_busy].mean(), rel=0.35)
    assert found == set(range(1, MOST_REPEATS + 1))


def test_the_part_of_code_is_within_what_is_said_and_differs() -> None:
    parts = [is_code(shaped(*services(), seed=seed)).mean() for seed in range(20)]
    low, high = CODE_FRACTIONS
    assert low - 0.02 <= min(parts) < 0.25
    assert 0.45 < max(parts) <= high + 0.02


def test_buckets_are_those_that_the_product_makes_of_the_same_trace() -> None:
    recorded = trace()
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [
        f"2026-01-01 00:{int(at) // 60:02}:{int(at) % 60:02},{inputs:.0f},{outputs:.0f}"
        for at, inputs, outputs in zip(recorded.at_s, recorded.input_tokens, recorded.output_tokens, strict=True)
    ]
    theirs = bucket_trace(lines, buckets=4).buckets
    ours, bucket_of = bucketed(recorded, mean_rps=len(recorded.at_s) / recorded.length_s)
    assert [(b.input_tokens, b.output_tokens, b.rate_rps) for b in ours] == [
        pytest.approx((b.input_tokens, b.output_tokens, b.rate_rps)) for b in theirs
    ]
    assert np.bincount(bucket_of).tolist() == [b.requests for b in theirs]


@pytest.mark.skipif(not are_there(), reason="the Azure traces are not beside the checkout, in shared/data/traces")
def test_the_recorded_chats_and_completions_make_days_that_swing() -> None:
    for seed in range(1, 6):
        day = day_of(shaped(*read_traces(), seed=seed), mean_rps=20.0, seed=seed)
        hourly = day.requests.sum(axis=1).reshape(48, -1).sum(axis=1)
        assert len(day.buckets) == 4
        assert hourly.max() > 1.5 * hourly.min()
