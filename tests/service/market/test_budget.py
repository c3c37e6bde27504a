"""The operator's own pace per cloud: an interval, and a budget of requests for each UTC day."""

from datetime import timedelta

from sutler.service.market.repository import PollReport
from sutler.service.settings import Pace
from tests.service.market.builders import NORTH, SOUTH, Store, an_answer, an_offer

HALF_A_DAY_S = 43_200.0


def patient_poll(store: Store) -> PollReport:
    store.clouds.answers["north"] = an_answer(an_offer())
    return store.poller.poll(NORTH)


def test_a_cloud_can_have_an_interval_of_its_own(store: Store) -> None:
    store.paces = {"north": Pace(poll_interval_s=600.0)}
    store.poll_interval_s = 90.0
    assert (store.poller.interval_s(NORTH), store.poller.interval_s(SOUTH)) == (600.0, 90.0)


def test_an_interval_of_its_own_is_not_below_what_the_cloud_bears(store: Store) -> None:
    store.paces = {"north": Pace(poll_interval_s=1.0)}
    assert store.poller.interval_s(NORTH) == NORTH.least_poll_interval_s


def test_a_spent_budget_leaves_the_cloud_alone_until_midnight(store: Store) -> None:
    store.paces = {"north": Pace(requests_per_day=5)}
    for _ in range(2):
        store.poll(an_answer(an_offer(), requests=2))
        assert not store.poller.is_due(NORTH)
        store.time.pass_s(120)
        assert store.poller.is_due(NORTH)
    store.poll(an_answer(an_offer(), requests=2))
    store.time.pass_s(120)
    assert not store.poller.is_due(NORTH)
    midnight = store.time.now().replace(hour=0, minute=0) + timedelta(days=1)
    asked = len(store.clouds.asked)
    report = patient_poll(store)
    assert (report.poll.outcome, report.retry_at, len(store.clouds.asked)) == ("quota", midnight, asked)
    assert "SUTLER_NORTH_REQUESTS_PER_DAY" in report.poll.detail


def test_a_new_day_has_a_new_budget(store: Store) -> None:
    store.paces = {"north": Pace(requests_per_day=1)}
    store.poll(an_answer(an_offer(), requests=1))
    store.time.pass_s(HALF_A_DAY_S)
    assert store.poller.is_due(NORTH)
    assert patient_poll(store).poll.outcome == "ok"


def test_who_insists_is_asked_past_the_budget(store: Store) -> None:
    store.paces = {"north": Pace(requests_per_day=1)}
    store.poll(an_answer(an_offer(), requests=1))
    assert store.poll(an_answer(an_offer(), requests=1)).poll.outcome == "ok"


def test_a_cloud_without_a_budget_has_none(store: Store) -> None:
    store.poll(an_answer(an_offer(), requests=10_000))
    store.time.pass_s(120)
    assert store.poller.is_due(NORTH)
