"""Traffic by steps of time, and the plan that held then."""

from datetime import UTC, datetime, timedelta

from sutler.service.deployments.history.service import means_by_step, rates_at

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_steps_have_the_mean_of_the_quarters_that_are_known() -> None:
    quarter = timedelta(minutes=15)
    known = {NOON: 2.0, NOON + 3 * quarter: 4.0, NOON + 8 * quarter: 0.0, NOON + 9 * quarter: 1.0}
    assert means_by_step(known, NOON, HOUR) == {0: 3.0, 2: 0.5}
    assert means_by_step(known, NOON, quarter) == {0: 2.0, 3: 4.0, 8: 0.0, 9: 1.0}


def test_the_plan_that_holds_is_the_last_that_came() -> None:
    plans = [(NOON, {"chat": 2.0}), (NOON + HOUR, {"chat": 3.0})]
    assert [dict(rates_at(plans, NOON + i * HOUR)) for i in (-1, 0, 0.5, 1, 9)] == [
        {}, {"chat": 2.0}, {"chat": 2.0}, {"chat": 3.0}, {"chat": 3.0},
    ]  # fmt: skip
