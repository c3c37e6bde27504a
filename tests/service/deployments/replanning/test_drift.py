"""What counts as moved: traffic beyond its thresholds, a plan's age, calm that has lasted; each with its evidence."""

from datetime import timedelta
from typing import Any

import pytest

from sutler.service.deployments.replanning.drift import Drift, mix_distance, mix_noise, timed_drifts, traffic_drifts
from sutler.service.deployments.replanning.load import at_least
from sutler.service.deployments.traffic.window import ModelTraffic
from tests.service.deployments.replanning.builders import START, a_policy, a_problem, known_of, observed, traffic

AS_MUCH_AS_POSSIBLE = {"kind": "max_throughput"}


def drifts(known: dict[str, ModelTraffic], *, problem: Any = None, **policy: Any) -> list[Drift]:
    return list(traffic_drifts(problem or a_problem(), known, a_policy(**policy)))


def kinds(known: dict[str, ModelTraffic], *, problem: Any = None, **policy: Any) -> list[str]:
    return [drift.kind for drift in drifts(known, problem=problem, **policy)]


def times(factor: float, **others: Any) -> dict[str, ModelTraffic]:
    """All of the planned traffic, so many times."""
    return traffic(20.0 * factor, 2.0 * factor, **others)


def test_the_planned_traffic_is_no_drift() -> None:
    assert drifts(traffic()) == []


def test_what_is_stated_and_not_seen_is_not_said_to_be_seen() -> None:
    [stated] = a_problem(50.0, 2.0).models
    known = {"chat": at_least(traffic(5.0, 2.0)["chat"], stated)}
    [drift] = [drift for drift in drifts(known) if drift.kind == "rate"]
    assert drift.detail.startswith("chat: 52 requests/s with those that are stated, 22 were planned")


@pytest.mark.parametrize("factor", [1.25, 0.75, 3.0, 0.1])
def test_a_rate_beyond_a_fifth_either_way_is_a_drift(factor: float) -> None:
    [drift] = drifts(times(factor))
    assert drift.kind == "rate"
    assert drift.value == pytest.approx(abs(factor - 1))
    assert drift.threshold == pytest.approx(0.2, abs=0.05)
    assert drift.threshold > 0.2  # by what chance does


@pytest.mark.parametrize("factor", [1.19, 0.81, 1.0])
def test_a_rate_within_a_fifth_is_none(factor: float) -> None:
    assert drifts(times(factor)) == []


def test_the_threshold_of_the_rate_is_the_policys() -> None:
    assert kinds(times(1.5), rate_drift_fraction=0.6) == []
    assert kinds(times(1.1), rate_drift_fraction=0.04) == ["rate"]


def test_a_drift_of_the_rate_says_what_was_seen_what_was_planned_and_over_which_time() -> None:
    [drift] = drifts(times(1.5))
    assert drift.detail == "chat: 33 requests/s over 120 s, 22 were planned (+50%)"


def test_growth_counts_once_it_fills_the_window() -> None:
    """Two minutes at three times the rate, after two hours as planned."""
    before = observed(20.0, 2.0, until=START - timedelta(seconds=120))
    grown = observed(60.0, 6.0, length_s=120.0)
    [drift] = drifts(known_of([*before, *grown]))
    assert drift.kind == "rate"
    assert drift.value == pytest.approx(2.0)


def test_a_lull_counts_only_once_it_has_lasted() -> None:
    before = observed(20.0, 2.0, until=START - timedelta(seconds=1800))
    quiet = observed(8.0, 0.8, length_s=1800.0)
    assert drifts(known_of([*before, *quiet])) == []
    lasted = a_policy(shrink_after_s=1800.0)
    [drift] = drifts(known_of([*before, *quiet], policy=lasted), shrink_after_s=1800.0)
    assert drift.kind == "rate"
    assert drift.value == pytest.approx(0.6)


def test_traffic_that_stops_while_the_feed_goes_on_is_a_drift_and_not_a_silence() -> None:
    known = traffic(0.0, 0.0)
    assert known["chat"].state == "live"
    [drift] = drifts(known)
    assert drift.kind == "rate"
    assert drift.value == pytest.approx(1.0)


def test_other_kinds_of_requests_are_a_drift_of_the_mix_which_names_the_one_that_has_grown() -> None:
    [drift] = [drift for drift in drifts(traffic(14.0, 8.0)) if drift.kind == "mix"]
    assert drift.value > drift.threshold == 0.2
    assert "document has 36% instead of 9%" in drift.detail


def test_a_mix_within_its_threshold_is_none() -> None:
    """Two of eleven documents become four of eleven."""
    planned = a_problem(18.0, 4.0)
    assert kinds(traffic(14.2, 7.8), problem=planned) == []
    assert kinds(traffic(13.0, 9.0), problem=planned) == ["mix"]


def test_a_mix_counts_only_beyond_what_a_small_sample_shows_by_chance() -> None:
    """The same shares of few and of many requests."""
    small, large = a_problem(0.93, 0.07), a_problem(93.0, 7.0)
    few = known_of(observed(0.70, 0.30, length_s=240.0), planned=small)
    many = known_of(observed(70.0, 30.0, length_s=240.0), planned=large)
    assert few["chat"].state == "live"
    assert kinds(few, problem=small, mix_drift=0.225) == []
    assert kinds(many, problem=large, mix_drift=0.225) == ["mix"]


def test_requests_that_have_grown_within_their_kind_are_a_drift_of_the_size() -> None:
    assert kinds(traffic(tokens_factor=1.3)) == ["size"]
    assert kinds(traffic(tokens_factor=1.15)) == []


def test_where_only_the_mix_counts_no_rate_is_a_drift() -> None:
    planned = a_problem(objective=AS_MUCH_AS_POSSIBLE, budget_usd_per_hour=10)
    assert kinds(times(5.0), problem=planned) == []
    assert kinds(traffic(10.0, 12.0), problem=planned) == ["mix"]


def test_a_silent_a_thin_and_a_feed_that_never_was_tell_of_no_drift() -> None:
    silent = known_of(observed(60.0, 9.0, until=START - timedelta(hours=3)))
    thin = known_of(observed(0.01, 0.05, length_s=60.0), planned=a_problem(0.02, 0.01))
    never = known_of([])
    assert [known["chat"].state for known in (silent, thin, never)] == ["silent", "thin", "never"]
    assert [drifts(known) for known in (silent, thin, never, {})] == [[], [], [], []]


def test_a_plan_is_too_old_at_its_age_and_never_without_one() -> None:
    def age(age_s: float, **policy: Any) -> list[str]:
        issued_at = START - timedelta(seconds=age_s)
        policy_ = a_policy(refine_s=1e6, **policy)
        return [d.kind for d in timed_drifts(policy_, issued_at=issued_at, calm_since=START, now=START)]

    assert age(7200.0, max_age_s=7200.0) == ["age"]
    assert age(7199.0, max_age_s=7200.0) == []
    assert age(1e7) == []


def test_calm_that_has_lasted_is_looked_over() -> None:
    def calm(calm_s: float) -> list[str]:
        since = START - timedelta(seconds=calm_s)
        found = timed_drifts(a_policy(refine_s=1800.0), issued_at=START, calm_since=since, now=START)
        return [drift.kind for drift in found]

    assert (calm(1799.0), calm(1800.0), calm(-3600.0)) == ([], ["refinement"], [])


def test_the_distance_of_mixes_is_half_the_change_of_their_shares() -> None:
    assert mix_distance({"a": 1.0, "b": 1.0}, {"a": 30.0, "b": 30.0}) == 0.0
    assert mix_distance({"a": 1.0}, {"b": 1.0}) == 1.0
    assert mix_distance({"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}) == pytest.approx(0.25)
    assert mix_distance({"a": 0.0}, {"a": 1.0}) == 0.0


def test_the_noise_of_a_mix_falls_with_the_root_of_the_sample() -> None:
    assert mix_noise([1.0, 1.0], 400.0) == pytest.approx(mix_noise([1.0, 1.0], 100.0) / 2)
    assert mix_noise([1.0], 100.0) == 0.0
    assert mix_noise([1.0, 1.0], 0.0) == 1.0
