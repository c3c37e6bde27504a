"""Events of a calendar: when they are on, when that changes, and what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sutler.service.deployments.calendar import EventDocument, expected
from sutler.service.deployments.schemas import NewDeploymentDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from tests.service.deployments.replanning.builders import a_problem

HOUR = timedelta(hours=1)
FRIDAY = datetime(2026, 11, 27, tzinfo=UTC)
LEAD = timedelta(minutes=5)


def an_event(**others: Any) -> EventDocument:
    """Every Friday from nine to eleven, UTC."""
    given: dict[str, Any] = {"name": "launch", "starts": "0 9 * * fri", "lasts_s": 7200.0, "times": 3.0}
    return validate(EventDocument, {**given, **others})


@pytest.mark.parametrize(
    ("hour", "is_on"), [(8.9, False), (9.0, True), (10.5, True), (11.0, True), (11.1, False), (33.0, False)]
)
def test_an_event_is_on_from_its_beginning_to_its_end(hour: float, is_on: bool) -> None:
    at = FRIDAY + hour * HOUR
    assert an_event().is_on(at, at) is is_on


def test_it_is_on_within_a_time_that_it_only_touches() -> None:
    assert an_event().is_on(FRIDAY + 8 * HOUR, FRIDAY + 9 * HOUR)
    assert not an_event().is_on(FRIDAY, FRIDAY + 8.99 * HOUR)


def test_an_event_of_somebody_else_s_clock_changes_with_their_summer() -> None:
    berlin = an_event(time_zone="Europe/Berlin", lasts_s=60.0)
    winter, summer = datetime(2026, 11, 27, 8, tzinfo=UTC), datetime(2026, 7, 3, 7, tzinfo=UTC)
    assert berlin.is_on(winter, winter)
    assert berlin.is_on(summer, summer)


def test_the_next_change_is_the_time_ahead_of_the_beginning_and_then_the_end() -> None:
    event = an_event()
    begins, ends = FRIDAY + 9 * HOUR, FRIDAY + 11 * HOUR
    assert event.next_change(FRIDAY, LEAD) == begins - LEAD
    assert event.next_change(begins - LEAD, LEAD) == ends
    assert event.next_change(begins + HOUR, LEAD) == ends
    assert event.next_change(ends, LEAD) == begins + timedelta(days=7) - LEAD


def test_of_several_events_the_one_with_the_most_requests_counts_for_its_models() -> None:
    calendar = [an_event(), an_event(name="more", times=5.0, models=["code"]), an_event(name="less", times=2.0)]
    at = FRIDAY + 10 * HOUR
    assert [getattr(expected(calendar, model, at, at), "name", None) for model in ("chat", "code")] == [
        "launch",
        "more",
    ]
    assert expected(calendar, "chat", FRIDAY, FRIDAY) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"starts": "0 9 * * 5"}, "starts: '0 9 * * 5': names days of the week by numbers: write mon to sun"),
        ({"starts": "at nine on fridays"}, "starts: 'at nine on fridays': is no line of cron such as 0 9 * * fri"),
        ({"starts": "0 99 * * *"}, "is no line of cron such as 0 9 * * fri: Error validating expression '99'"),
        ({"starts": "0 0 31 2 *"}, "starts: '0 0 31 2 *': never comes: no month has that day"),
        ({"time_zone": "Mars"}, "time_zone: 'Mars': is no time zone of the IANA database, such as Europe/Berlin"),
        ({"times": 0.0}, "times"),
        ({"lasts_s": 0.0}, "lasts_s"),
        ({"models": []}, "models"),
    ],
)
def test_what_is_no_event_is_refused_with_its_field(given: dict[str, Any], told: str) -> None:
    with pytest.raises(DocumentError, match=told.replace("*", r"\*").replace("+", r"\+")):
        an_event(**given)


def test_an_event_of_a_model_that_the_problem_lacks_is_refused() -> None:
    event = an_event(models=["chat", "chatt"]).model_dump(mode="json")
    problem = a_problem().model_dump(mode="json", by_alias=True, exclude_unset=True)
    with pytest.raises(DocumentError, match=r"policy.calendar\[0\].models: 'chatt': is no model of the problem"):
        validate(NewDeploymentDocument, {"name": "x", "problem": problem, "policy": {"calendar": [event]}})
