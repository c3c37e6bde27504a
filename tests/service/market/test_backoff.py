"""When a cloud is polled next: pure rules, times in and times out."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.adapters.base import Poll
from sutler.adapters.errors import Outcome
from sutler.service.market.backoff import LONGEST_BACKOFF_S, NextPoll, next_poll
from tests.service.market.builders import FAILURES, NOON, a_failure, an_answer


def after(poll: Poll, *, failures_before: int = 0, interval_s: float = 60.0) -> NextPoll:
    return next_poll(poll, at=NOON, interval_s=interval_s, failures_before=failures_before)


def wait_s(poll: Poll, *, failures_before: int = 0) -> float:
    return (after(poll, failures_before=failures_before).at - NOON).total_seconds()


@pytest.mark.parametrize("outcome", ["ok", "partial", "prices_only"])
def test_after_an_answer_comes_the_interval(outcome: Outcome) -> None:
    found = after(an_answer(outcome=outcome), failures_before=7)
    assert found == NextPoll(NOON + timedelta(seconds=60), None, None, 0)


def test_an_answer_may_ask_for_more_patience_than_the_interval() -> None:
    found = after(an_answer(wait_s=400.0, wait_is_stated=True))
    assert found.at == found.asked_to_wait_until == found.retry_at == NOON + timedelta(seconds=400)
    assert after(an_answer(wait_s=5.0, wait_is_stated=True)).at == NOON + timedelta(seconds=60)


def test_our_own_wait_is_not_the_cloud_s_wish() -> None:
    own = Poll(outcome="retry", wait_s=8.0)
    assert after(own).asked_to_wait_until is None
    assert after(own).retry_at == NOON + timedelta(seconds=8)


def test_each_failure_in_a_row_doubles_the_wait_up_to_half_an_hour() -> None:
    waits = [wait_s(a_failure("retry"), failures_before=n) for n in range(8)]
    assert waits == [60, 120, 240, 480, 960, 1800, 1800, 1800]
    assert wait_s(a_failure("bad_body"), failures_before=10_000) == LONGEST_BACKOFF_S


def test_a_wait_that_a_cloud_asks_for_is_kept_however_long() -> None:
    found = after(a_failure("quota", wait_s=40_000))
    until = NOON + timedelta(seconds=40_000)
    assert found == NextPoll(until, until, until, 1)


def test_a_short_wait_that_a_cloud_asks_for_does_not_shorten_the_backoff() -> None:
    found = after(a_failure("retry", wait_s=15), failures_before=3)
    assert found.at == NOON + timedelta(seconds=480)
    assert found.retry_at == found.asked_to_wait_until == NOON + timedelta(seconds=15)


@pytest.mark.parametrize("outcome", ["auth_error", "config_error", "bad_shape"])
def test_what_waiting_does_not_cure_is_looked_at_every_five_minutes(outcome: Outcome) -> None:
    found = after(a_failure(outcome), failures_before=20)
    assert found == NextPoll(NOON + timedelta(seconds=300), None, None, 21)


@given(
    outcome=st.sampled_from(("ok", "partial", "prices_only", *FAILURES)),
    wait=st.none() | st.floats(0, 86_400),
    failures=st.integers(0, 1000),
    interval=st.floats(1, 86_400),
)
def test_no_cloud_is_polled_before_its_interval_or_the_wait_it_asked_for(
    outcome: Outcome, wait: float | None, failures: int, interval: float
) -> None:
    found = after(Poll(outcome=outcome, wait_s=wait), failures_before=failures, interval_s=interval)
    least_s = min(interval, LONGEST_BACKOFF_S)
    assert found.at >= NOON + timedelta(seconds=least_s) - timedelta(microseconds=1)
    assert found.asked_to_wait_until is None or found.at >= found.asked_to_wait_until
