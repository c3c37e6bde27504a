"""Traffic that is known to come: events of a calendar, from which part of the stated rates they multiply. Pure.

What is expected is that multiple of the rates that the problem states, since what is seen has the event in it as soon
as it has begun. More that is seen counts all the same.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, Self

from apscheduler.triggers.cron import CronTrigger
from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, Name, reject
from sutler.service.errors import FieldProblem

LONGEST_S: Final = 31 * 86_400.0
MOST_EVENTS: Final = 20  # chosen: each is asked at every look
_ANY_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
_DAYS: Final = 4  # the field of the day of the week in a line of cron


class EventDocument(Document):
    """Something that comes again and again, such as every Friday at nine, and brings more requests."""

    name: Name
    """What plans and reasons call it."""
    starts: Annotated[str, Field(min_length=9, max_length=200)]
    """When it begins, as a line of cron: minute, hour, day of the month, month, day of the week. Days of the week are
    written as mon to sun, since programs number them differently: `0 9 * * fri`."""
    time_zone: Annotated[str, Field(min_length=1, max_length=100)] = "UTC"
    """Whose clock that is, as in the IANA time zone database: `Europe/Berlin`."""
    lasts_s: Annotated[float, Field(gt=0, le=LONGEST_S)]
    """Seconds from its beginning to its end."""
    times: Annotated[float, Field(gt=0, le=1000)]
    """No fewer requests than so many times those that the problem states are planned for meanwhile."""
    models: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] | None = None
    """Names of the models whose requests these are; null: all."""

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        remedy = None
        if any(sign.isdigit() for sign in " ".join(self.starts.split()[_DAYS:])):
            remedy = "names days of the week by numbers: write mon to sun"
        else:
            try:
                remedy = None if self.is_ever_on else "never comes: no month has that day"
            except ValueError as error:
                remedy = f"is no line of cron such as 0 9 * * fri: {error}"
        if remedy is not None:
            reject([FieldProblem("starts", repr(self.starts), remedy)])
        try:
            _trigger(self.starts, self.time_zone)
        except (LookupError, ValueError):
            remedy = "is no time zone of the IANA database, such as Europe/Berlin"
            reject([FieldProblem("time_zone", repr(self.time_zone), remedy)])
        return self

    @property
    def is_ever_on(self) -> bool:
        """Whether there is such a day. Raises ValueError for what is no line of cron."""
        return _trigger(self.starts, "UTC").get_next_fire_time(None, _ANY_DAY) is not None

    def is_on(self, since: datetime, until: datetime) -> bool:
        """Whether any of it falls between these moments."""
        first = _trigger(self.starts, self.time_zone).get_next_fire_time(None, since - self._length)
        return first is not None and first <= until

    def next_change(self, after: datetime, lead: timedelta) -> datetime | None:
        """When it ends or the time ahead of its next beginning begins, whichever is first."""
        trigger = _trigger(self.starts, self.time_zone)
        now = trigger.get_next_fire_time(None, after - self._length)
        begins = trigger.get_next_fire_time(None, after + lead)
        moments = [] if begins is None else [begins - lead]
        if now is not None:
            moments.append(now + self._length)
        return min((moment for moment in moments if moment > after), default=None)

    @property
    def _length(self) -> timedelta:
        return timedelta(seconds=self.lasts_s)


def expected(calendar: Iterable[EventDocument], model: str, since: datetime, until: datetime) -> EventDocument | None:
    """The event that brings the most requests of a model between these moments; None: there is none."""
    found = (event for event in calendar if event.models is None or model in event.models)
    return max((event for event in found if event.is_on(since, until)), key=lambda event: event.times, default=None)


def unknown_models(calendar: Sequence[EventDocument], models: Iterable[str]) -> list[FieldProblem]:
    """Events of models that the problem does not have."""
    known = set(models)
    return [
        FieldProblem(f"policy.calendar[{number}].models", repr(name), f"is no model of the problem: {sorted(known)}")
        for number, event in enumerate(calendar)
        for name in event.models or ()
        if name not in known
    ]


@lru_cache(maxsize=1000)
def _trigger(starts: str, time_zone: str) -> CronTrigger:
    return CronTrigger.from_crontab(starts, timezone=time_zone)
