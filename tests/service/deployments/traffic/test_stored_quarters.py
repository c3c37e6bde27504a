"""Requests by quarters of an hour: counted once, of all sources, and read for the same time of past days."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.traffic import repository, season_repository
from sutler.service.deployments.traffic.season import KEPT, QUARTER, quarter_of
from sutler.service.deployments.traffic.service import usual_rps
from sutler.service.deployments.traffic.window import Observation
from tests.service.deployments.traffic.builders import NOW
from tests.service.deployments.traffic.site import Deployed

FIRST = quarter_of(NOW) - 8 * QUARTER


def told(rps: float, begin: datetime, length_s: float, *, source: str = "g") -> Observation:
    return Observation("chat", source, begin, begin + timedelta(seconds=length_s), rps * length_s, ())


def add(deployed: Deployed, observations: Sequence[Observation], *, digest: bytes = b"q") -> None:
    id_ = deployed.id

    async def work(connection: AsyncConnection) -> None:
        await repository.add(connection, id_, observations, digest=digest, now=NOW)

    deployed.api.office.changed(work)


def rates(deployed: Deployed, *quarters: datetime) -> dict[datetime, float]:
    id_ = deployed.id

    async def work(connection: AsyncConnection) -> dict[datetime, float]:
        found = await season_repository.rates(connection, id_, models=["chat"], quarters=quarters)
        return found["chat"]

    return deployed.api.office.read(work)


def test_what_spans_quarters_is_divided_and_what_is_sent_again_counts_once(chat: Deployed) -> None:
    spans = [told(4.0, FIRST + QUARTER / 2, QUARTER.total_seconds())]
    add(chat, spans)
    add(chat, spans)
    add(chat, [told(4.0, FIRST, QUARTER.total_seconds() / 2)])
    found = rates(chat, FIRST, FIRST + QUARTER, FIRST + 2 * QUARTER)
    assert found == {FIRST: pytest.approx(4.0), FIRST + QUARTER: pytest.approx(2.0)}


def test_sources_add_up_and_windows_that_overlap_do_not(chat: Deployed) -> None:
    """A Prometheus that is asked every minute for the last four, and a gateway."""
    sliding = [told(3.0, FIRST + timedelta(seconds=60.0 * number), 240.0, source="p") for number in range(-4, 16)]
    add(chat, [*sliding, told(2.0, FIRST, QUARTER.total_seconds())])
    assert rates(chat, FIRST) == {FIRST: pytest.approx(5.0)}


def test_the_same_time_of_past_days_is_what_usually_comes(chat: Deployed) -> None:
    now, id_ = FIRST + timedelta(minutes=13), chat.id
    days = [now - timedelta(days=number) for number in range(10)]
    for day in days:
        begin = quarter_of(day)
        add(chat, [told(5.0, begin - number * QUARTER, 900.0) for number in range(5)], digest=b"a")
        if day != now:
            add(chat, [told(10.0, begin + QUARTER, 900.0)], digest=b"b")

    async def usual(connection: AsyncConnection) -> dict[str, float]:
        ahead = timedelta(minutes=5)
        return await usual_rps(connection, id_, ["chat", "code"], now=now, ahead=ahead, quantile=0.9)

    assert chat.api.office.read(usual) == {"chat": pytest.approx(10.0)}


def test_what_is_older_than_is_compared_is_forgotten(chat: Deployed) -> None:
    old = quarter_of(NOW - KEPT) - QUARTER
    add(chat, [told(1.0, old, 900.0), told(1.0, FIRST, 900.0)])
    chat.api.office.changed(lambda connection: season_repository.forget_old(connection, NOW - KEPT))
    assert list(rates(chat, old, FIRST)) == [FIRST]
