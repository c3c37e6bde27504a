"""Histograms as Prometheus counts them."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.histograms import (
    MOST_BOUNDS,
    Histogram,
    NotAHistogramError,
    first,
    histogram_of,
    summed,
)
from tests.service.deployments.traffic.builders import TOKENS, a_histogram

VALUES = st.lists(st.integers(0, 20_000), max_size=30)


def cumulative(histogram: Histogram) -> dict[float, float]:
    return dict(zip((*histogram.bounds, inf), accumulate(histogram.counts), strict=True))


def test_bins_hold_what_lies_between_their_bounds() -> None:
    found = histogram_of({1.0: 2, 5.0: 3, inf: 7}, 60.0)
    assert found == Histogram((1.0, 5.0), (2, 1, 4), 60.0)
    assert found.count == 7


@given(VALUES)
def test_what_is_written_is_read(values: list[int]) -> None:
    histogram = a_histogram(values)
    assert histogram_of(cumulative(histogram), histogram.total) == histogram


@given(VALUES, VALUES)
def test_the_difference_is_what_came(before: list[int], after: list[int]) -> None:
    then, now = a_histogram(before), a_histogram([*before, *after])
    assert not now.has_less_than(then)
    assert now.since(then) == a_histogram(after)


@given(VALUES, VALUES)
def test_less_of_anything_is_no_continuation(one: list[int], other: list[int]) -> None:
    then, now = a_histogram(one), a_histogram(other)
    assert now.has_less_than(then) or min(now.since(then).counts) >= 0
    if len(other) < len(one):
        assert now.has_less_than(then)


def test_other_bounds_are_another_histogram() -> None:
    assert a_histogram([3.0]).has_less_than(a_histogram([], bounds=TOKENS[1:]))


def test_less_in_total_is_no_continuation() -> None:
    assert a_histogram([600.0, 5.0]).has_less_than(a_histogram([900.0, 5.0]))


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=30), st.integers(1, 100))
def test_a_quantile_lies_in_the_bin_of_the_value(values: list[int], percent: int) -> None:
    value = sorted(values)[-(-percent * len(values) // 100) - 1]
    low, high = next((low, high) for low, high in pairwise((0.0, *TOKENS, inf)) if value <= high)
    found = a_histogram(values).quantile(percent / 100)
    assert found is not None
    assert min(low, TOKENS[-1]) - 1e-6 <= found <= min(high, TOKENS[-1]) + 1e-6


def test_a_quantile_is_interpolated_within_its_bin() -> None:
    assert Histogram((10.0, 20.0), (0, 4, 0), 60.0).quantile(0.5) == pytest.approx(15)
    assert Histogram((10.0, 20.0), (2, 2, 0), 60.0).quantile(0.25) == pytest.approx(5)


def test_beyond_the_last_bound_it_is_that_bound() -> None:
    assert Histogram((10.0, 20.0), (0, 0, 4), 600.0).quantile(0.5) == 20.0
    assert Histogram((), (4,), 600.0).quantile(0.5) is None


@given(VALUES, st.floats(0, 10))
def test_a_multiple_has_the_same_quantiles(values: list[int], factor: float) -> None:
    histogram = a_histogram(values)
    assert histogram.times(factor).count == pytest.approx(histogram.count * factor)
    assert histogram.times(2.0).quantile(0.9) == histogram.quantile(0.9)


@pytest.mark.parametrize(
    ("buckets", "total", "objection"),
    [
        ({}, 0.0, "no bucket with le="),
        ({1.0: 2}, 0.0, "no bucket with le="),
        ({1.0: 3, inf: 2}, 5.0, "count less than smaller ones"),
        ({1.0: -1, inf: 2}, 5.0, "counts that cannot be"),
        ({1.0: nan, inf: 2}, 5.0, "counts that cannot be"),
        ({1.0: inf, inf: inf}, 5.0, "counts that cannot be"),
        ({1.0: 1, inf: 2e15}, 5.0, "counts that cannot be"),
        ({1.0: 1, inf: 2}, nan, "counts that cannot be"),
        ({1.0: 1, inf: 2}, -1.0, "counts that cannot be"),
        ({1.0: 1, inf: 2}, inf, "counts that cannot be"),
        ({-inf: 1, inf: 2}, 1.0, "bounds are no numbers"),
        ({**{float(n): 0 for n in range(MOST_BOUNDS)}, inf: 0}, 0.0, "more than 300"),
    ],
)
def test_counts_that_no_histogram_has_are_refused(buckets: dict[float, float], total: float, objection: str) -> None:
    with pytest.raises(NotAHistogramError, match=objection):
        histogram_of(buckets, total)


@pytest.mark.parametrize("buckets", [{nan: 1, inf: 2}, {inf: 2, nan: 1}, {1.0: 0, nan: 1, inf: 2}])
def test_a_bound_that_is_no_number_is_refused(buckets: dict[float, float]) -> None:
    with pytest.raises(NotAHistogramError):
        histogram_of(buckets, 1.0)


def test_what_is_extrapolated_may_be_a_little_less_than_before_and_counts_as_equal() -> None:
    found = histogram_of({1.0: 10.1, 5.0: 10.0, inf: 100.0}, 60.0, tolerance_fraction=0.02)
    assert found.counts == pytest.approx((10.1, 0, 89.9))
    with pytest.raises(NotAHistogramError):
        histogram_of({1.0: 13.0, 5.0: 10.0, inf: 100.0}, 60.0, tolerance_fraction=0.02)


def test_sums_are_taken_where_all_have_a_bound() -> None:
    assert summed([{1.0: 1, 5.0: 2, inf: 3}, {5.0: 10, inf: 20}]) == {5.0: 12, inf: 23}
    assert summed([]) == {}


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_sums_are_of_all_values(parts: Sequence[list[int]]) -> None:
    together = a_histogram([value for part in parts for value in part])
    assert summed([cumulative(a_histogram(part)) for part in parts]) == cumulative(together)


def test_the_first_that_has_counted_anything_is_taken() -> None:
    full = a_histogram([1.0])
    assert first([None, a_histogram(), full, a_histogram([2.0])]) == full
    assert first([None, a_histogram()]) is None


@given(VALUES, st.floats(0.01, 0.99))
def test_the_share_within_a_quantile_is_its_fraction(values: list[int], fraction: float) -> None:
    histogram = a_histogram(values)
    value = histogram.quantile(fraction)
    if value is None:
        assert histogram.fraction_within(1.0) is None
    elif value < histogram.bounds[-1]:
        assert histogram.fraction_within(value) == pytest.approx(fraction, abs=1e-9)


def test_what_is_beyond_all_bounds_is_not_known_to_be_within() -> None:
    histogram = Histogram((1.0, 5.0), (2, 1, 1), 20.0)
    assert [histogram.fraction_within(value) for value in (-1.0, 0.5, 1.0, 5.0, 1e9)] == [0.0, 0.25, 0.5, 0.75, 0.75]
