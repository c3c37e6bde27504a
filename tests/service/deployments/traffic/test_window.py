"""What is known of a model's traffic, and how well, from what was observed."""

from datetime import timedelta
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.window import ENOUGH_REQUESTS, Observation, nearest
from tests.service.deployments.traffic.builders import (
    DOCUMENT,
    NOW,
    QUESTION,
    SHAPES,
    ago,
    an_observation,
    peak_factor,
    steady,
    traffic_of,
)

SEEN = st.builds(
    an_observation,
    st.integers(0, 500),
    length_s=st.sampled_from([1.0, 10.0, 60.0, 600.0]),
    until=st.integers(0, 900).map(ago),
    source=st.sampled_from(["", "a", "b"]),
    size=st.sampled_from([(500.0, 250.0), (3000.0, 300.0), (0.0, 0.0), (100_000.0, 1.0)]),
)


def test_without_any_observation_nothing_was_ever_seen() -> None:
    found = traffic_of([])
    assert (found.state, found.rate_rps, found.last_at) == ("never", 0.0, None)
    assert [(w.workload, w.input_tokens, w.output_tokens) for w in found.workloads] == [
        ("question", 500, 250),
        ("document", 3000, 300),
    ]


def test_a_steady_rate_is_what_it_is() -> None:
    found = traffic_of(steady(20, 240))
    assert (found.state, found.window_s, found.last_at) == ("live", 120.0, NOW)
    assert found.requests == pytest.approx(2400)
    assert found.rate_rps == pytest.approx(20)


def test_workloads_are_told_apart_by_size_and_have_the_means_that_were_seen() -> None:
    question, document = traffic_of([*steady(20, 120, size=(400, 300)), *steady(2, 120, size=(4000, 200))]).workloads
    assert (question.rate_rps, question.requests) == pytest.approx((20, 2400))
    assert (question.input_tokens, question.output_tokens) == pytest.approx((400, 300))
    assert (document.rate_rps, document.requests) == pytest.approx((2, 240))
    assert (document.input_tokens, document.output_tokens) == pytest.approx((4000, 200))


def test_a_workload_without_requests_keeps_its_planned_size() -> None:
    _, document = traffic_of(steady(20, 120, size=(400, 300))).workloads
    assert (document.rate_rps, document.input_tokens, document.output_tokens) == (0.0, 3000, 300)


@pytest.mark.parametrize(("seconds", "state"), [(360, "live"), (361, "silent")])
def test_three_windows_after_the_last_word_it_is_silent(seconds: float, state: str) -> None:
    found = traffic_of(steady(20, 120, until=ago(seconds)))
    assert (found.state, found.last_at) == (state, ago(seconds))
    assert found.rate_rps == pytest.approx(20 if state == "live" else 0)


@pytest.mark.parametrize(("hours", "state"), [(3.0, "live"), (3.01, "silent")])
def test_who_tells_once_an_hour_is_silent_after_three(hours: float, state: str) -> None:
    assert traffic_of([an_observation(72_000, length_s=3600, until=ago(3600 * hours))]).state == state


def test_one_source_that_goes_on_is_enough() -> None:
    old = steady(20, 120, source="a", until=ago(3000))
    assert traffic_of([*old, *steady(20, 120, source="b")]).rate_rps == pytest.approx(20)


def test_no_traffic_that_is_told_of_is_known_to_be_none() -> None:
    found = traffic_of(steady(0, 120))
    assert (found.state, found.requests, found.rate_rps) == ("live", 0.0, 0.0)


def test_no_traffic_says_nothing_where_little_is_planned() -> None:
    assert traffic_of(steady(0, 3600), planned_rps=0.01).state == "thin"


def test_no_traffic_over_a_longer_window_says_something() -> None:
    found = traffic_of(steady(0, 3600), planned_rps=0.1)
    assert (found.state, found.window_s) == ("live", 1920.0)


def test_few_requests_tell_too_little() -> None:
    found = traffic_of(steady(0.01, 3600), planned_rps=0.01)
    assert (found.state, found.window_s) == ("thin", 3600.0)
    assert found.rate_rps == pytest.approx(0.01)


def test_a_burst_of_a_few_seconds_tells_too_little() -> None:
    assert traffic_of([an_observation(10_000)]).state == "thin"
    assert traffic_of(steady(1000, 60)).state == "live"


@pytest.mark.parametrize(("rps", "window_s"), [(1.0, 120.0), (0.5, 240.0), (0.25, 480.0), (0.05, 3600.0)])
def test_the_window_doubles_until_it_holds_enough_and_is_never_longer_than_the_longest(
    rps: float, window_s: float
) -> None:
    found = traffic_of(steady(rps, 3600), planned_rps=rps)
    assert (found.state, found.window_s) == ("live", window_s)
    assert found.requests >= ENOUGH_REQUESTS
    assert found.rate_rps == pytest.approx(rps)


def test_the_last_doubling_ends_at_the_longest() -> None:
    assert traffic_of(steady(0.5, 3600), planned_rps=0.5, longest_s=220.0).window_s == 220.0


def test_a_longest_below_the_window_does_not_shorten_it() -> None:
    assert traffic_of(steady(20, 120), longest_s=10.0).window_s == 120.0


def test_a_change_shows_within_one_window() -> None:
    assert traffic_of([*steady(20, 600, until=ago(120)), *steady(60, 120)]).rate_rps == pytest.approx(60)


@pytest.mark.parametrize("missing", [{3}, {1, 4, 7}, {2, 3, 4, 5}])
def test_a_gap_is_no_lull(missing: set[int]) -> None:
    told = [window for number, window in enumerate(steady(20, 120)) if number not in missing]
    assert traffic_of(told).rate_rps == pytest.approx(20)


def test_an_empty_window_is_a_lull() -> None:
    assert traffic_of([*steady(0, 60), *steady(20, 60, until=ago(60))]).rate_rps == pytest.approx(10)


def test_the_rates_of_sources_add_up() -> None:
    told = [*steady(5, 120, source="a"), *steady(7, 120, source="b"), *steady(1, 120, source="")]
    assert traffic_of(told).rate_rps == pytest.approx(13)


def test_a_source_that_has_just_come_adds_its_whole_rate() -> None:
    assert traffic_of([*steady(5, 120, source="a"), *steady(7, 20, source="b")]).rate_rps == pytest.approx(12)


def test_two_processes_that_do_not_tell_themselves_apart_add_up() -> None:
    told = [*steady(5, 120), *steady(7, 120)]
    assert traffic_of(told).rate_rps == pytest.approx(12)


def test_a_sliding_window_that_is_sent_often_counts_once() -> None:
    told = [an_observation(1200, length_s=60, until=ago(10 * number)) for number in range(20)]
    assert traffic_of(told).rate_rps == pytest.approx(20)


def test_of_what_began_before_the_window_a_part_counts() -> None:
    found = traffic_of([an_observation(12_000, length_s=600)])
    assert found.requests == pytest.approx(2400)
    assert found.rate_rps == pytest.approx(20)


def test_a_clock_that_is_a_little_ahead_is_believed_up_to_now() -> None:
    found = traffic_of(steady(20, 120, until=ago(-4)))
    assert (found.state, found.last_at) == ("live", NOW)
    assert found.rate_rps == pytest.approx(20)


def test_what_is_to_come_is_not_counted() -> None:
    told = [*steady(20, 120), *steady(1000, 60, until=ago(-3600))]
    assert traffic_of(told).rate_rps == pytest.approx(20)
    assert traffic_of(steady(1000, 60, until=ago(-3600))).state == "never"


def test_a_clock_that_was_set_back_waits_for_nothing() -> None:
    """Ours: what was received before it lies ahead."""
    ahead, since = steady(20, 600, until=ago(-300)), steady(40, 120)
    assert traffic_of([*ahead, *since]).state == "live"
    assert traffic_of(ahead).last_at == NOW


def test_sources_whose_clocks_differ_add_up() -> None:
    told = [*steady(5, 600, source="a"), *steady(7, 600, source="b", until=ago(50))]
    assert traffic_of(told).rate_rps == pytest.approx(12)


def test_an_engine_that_another_has_replaced_fades_with_the_window() -> None:
    told = [*steady(20, 1800, until=ago(300), source="old"), *steady(20, 300, source="new")]
    assert traffic_of(told).rate_rps == pytest.approx(20)
    both = [*steady(20, 1800, until=ago(30), source="old"), *steady(20, 300, source="new")]
    assert traffic_of(both).rate_rps == pytest.approx(40)


def test_an_observation_of_no_length_counts_and_has_no_rate() -> None:
    found = traffic_of([an_observation(500, length_s=0)])
    assert (found.state, found.rate_rps) == ("thin", 0.0)


def test_without_a_lull_to_wait_for_there_was_no_more_than_now() -> None:
    assert traffic_of([*steady(60, 600, until=ago(120)), *steady(20, 120)]).peak_work == 0


def test_the_peak_is_the_most_work_in_the_time_that_a_lull_has_to_last() -> None:
    told = [*steady(20, 3600), *steady(60, 600, until=ago(1200), source="more")]
    assert peak_factor(traffic_of(told, lull_s=3600.0)) == pytest.approx(4)
    assert peak_factor(traffic_of(told, lull_s=600.0)) == pytest.approx(1)


def test_fewer_requests_that_were_longer_were_more_work() -> None:
    told = [*steady(20, 600), *steady(10, 3000, until=ago(600), size=(2000, 1000))]
    assert peak_factor(traffic_of(told, lull_s=3600.0)) == pytest.approx(2)


def test_a_peak_that_is_not_known_for_so_long_may_have_been_anything() -> None:
    assert peak_factor(traffic_of(steady(20, 1800), lull_s=3600.0)) == inf
    assert peak_factor(traffic_of(steady(20, 3600), lull_s=3600.0)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((1, 1), QUESTION),
        ((0, 0), QUESTION),
        ((1200, 270), QUESTION),
        ((1300, 270), DOCUMENT),
        ((1e7, 1e7), DOCUMENT),
    ],
)
def test_a_request_belongs_to_the_workload_that_is_nearest_in_logarithms(
    size: tuple[float, float], shape: object
) -> None:
    assert nearest(SHAPES, *size) == shape


@given(st.lists(SEEN, max_size=12), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(told: list[Observation], random: Random) -> None:
    again = [*told, *random.choices(told, k=5)] if told else []
    random.shuffle(again)
    assert traffic_of(again, lull_s=600.0) == traffic_of(told, lull_s=600.0)


@given(st.lists(SEEN, max_size=12))
def test_workloads_add_up_to_the_model(told: list[Observation]) -> None:
    found = traffic_of(told, lull_s=600.0)
    assert sum(w.requests for w in found.workloads) == pytest.approx(found.requests)
    assert sum(w.rate_rps for w in found.workloads) == pytest.approx(found.rate_rps)
    assert found.requests <= sum(o.requests for o in told) + 1e-6


@given(st.floats(0.1, 1000), st.sampled_from([1.0, 10.0, 30.0, 60.0, 120.0]), st.integers(1, 5), st.floats(0, 300))
def test_however_it_is_cut_a_steady_rate_stays_itself(
    rps: float, length_s: float, sources: int, late_s: float
) -> None:
    told = [o for n in range(sources) for o in steady(rps, 600, length_s=length_s, source=f"{n}", until=ago(late_s))]
    assert traffic_of(told).rate_rps == pytest.approx(rps * sources)


@given(st.lists(SEEN, min_size=1, max_size=8), st.floats(0, 100_000))
def test_once_silent_it_stays_silent_until_something_comes(told: list[Observation], later_s: float) -> None:
    states = [traffic_of(told, now=NOW + timedelta(seconds=s)).state for s in (0, later_s, later_s * 2)]
    assert "never" not in states
    assert "silent" not in states or set(states[states.index("silent") :]) == {"silent"}
