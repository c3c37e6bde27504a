"""By how much holdings have grown of late: what reports add, and what they give back."""

from datetime import UTC, datetime, timedelta

from sutler.service.deployments.holdings.repository import kind_of
from sutler.service.deployments.sharing.growth import GROWTH_KEPT, growth_of, stored_growth

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
KIND = kind_of("vastai", "1", "on_demand", 4)


def test_machines_that_come_one_by_one_are_each_of_their_time() -> None:
    first = growth_of({}, {}, {KIND: 2}, NOW)
    second = growth_of(first, {KIND: 2}, {KIND: 3}, LATER)
    assert stored_growth(second) == {(("vastai", "1", "on_demand"), 4): [(NOW, 2), (LATER, 1)]}


def test_the_same_report_adds_nothing() -> None:
    first = growth_of({}, {}, {KIND: 2}, NOW)
    assert growth_of(first, {KIND: 2}, {KIND: 2}, LATER) == first


def test_what_is_given_back_was_the_newest() -> None:
    grown = growth_of(growth_of({}, {}, {KIND: 2}, NOW), {KIND: 2}, {KIND: 5}, LATER)
    assert stored_growth(growth_of(grown, {KIND: 5}, {KIND: 3}, LATER)) == {
        (("vastai", "1", "on_demand"), 4): [(NOW, 2), (LATER, 1)]
    }
    assert growth_of(grown, {KIND: 5}, {}, LATER) == {}


def test_what_any_market_shows_by_now_is_forgotten() -> None:
    first = growth_of({}, {}, {KIND: 2}, NOW)
    assert growth_of(first, {KIND: 2}, {KIND: 2}, NOW + GROWTH_KEPT) == {}
