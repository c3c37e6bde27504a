"""The polls of a cloud, as they are listed: the newest first, each once, whatever the clock did."""

from datetime import datetime, timedelta
from random import Random

import pytest

from sutler.service.market.resources import PollResource
from sutler.service.market.service import MarketService
from sutler.service.settings import MarketSettings
from sutler.service.web.errors import NotFoundError
from tests.looped import for_each
from tests.service.market.builders import (
    CONFIG,
    NOON,
    SOUTH,
    Store,
    a_failure,
    a_rejected_row,
    an_answer,
    an_offer,
)


def a_service(store: Store) -> MarketService:
    return MarketService(store.engine, MarketSettings(("lium",), {"lium": CONFIG}), store.poller, store.time.now)


def in_pages(store: Store, *, of: int, name: str = "north") -> list[PollResource]:
    found: list[PollResource] = []
    before: datetime | None = None
    while page := a_service(store).polls(name, limit=of, before=before):
        assert len(page) <= of
        found += page
        before = page[-1].at
    return found


def test_a_poll_says_what_was_asked_and_what_came_of_it(store: Store) -> None:
    answer = an_answer(
        an_offer("a"), rejected=(a_rejected_row(),), not_available={"rented": 3}, http_status=200, requests=2
    )
    store.poll(answer, after_s=0)
    store.poll(a_failure("quota", wait_s=900))
    store.poll(an_answer(), cloud=SOUTH)
    failed, done = a_service(store).polls("north", limit=10)
    assert (done.at, done.ended_at, done.outcome, done.http_status) == (NOON, NOON, "ok", 200)
    assert (done.kept, done.opened, done.closed, done.requests) == (1, 1, 0, 2)
    assert (done.rejected, done.not_available, done.flags) == ({"unknown_gpu": 1}, {"rented": 3}, {})
    assert (failed.outcome, failed.http_status, failed.detail) == ("quota", 503, "the cloud said quota")
    assert failed.retry_at == failed.at + timedelta(seconds=900)


@for_each("seed", range(12))
def test_pages_hold_each_poll_once_where_the_clock_stands_or_goes_back(seed: int, store: Store) -> None:
    random = Random(seed)
    store.poll(an_answer(), after_s=0)
    before = {poll.at for poll in in_pages(store, of=200)}
    reports = [
        store.poll(random.choice((an_answer(), a_failure())), after_s=random.choice((0.0, 0.0, 60.0, -30.0)))
        for _ in range(7)
    ]
    store.poll(an_answer(), after_s=0, cloud=SOUTH)
    every = in_pages(store, of=200)
    expected = [report.at for report in reversed(reports)]
    assert [poll.at for poll in every if poll.at not in before] == expected
    assert len({poll.at for poll in every}) == len(every) == len(before) + 7
    assert in_pages(store, of=random.choice((1, 2, 3))) == every


def test_polls_of_one_instant_take_effect_one_after_another(store: Store) -> None:
    for _ in range(3):
        store.poll(an_answer(an_offer("a")), after_s=0)
    polls = in_pages(store, of=1)
    assert [poll.ended_at for poll in polls] == [NOON] * 3
    assert [poll.at - NOON for poll in polls] == [timedelta(microseconds=n) for n in (2, 1, 0)]


def test_a_cloud_that_was_never_polled_has_none_and_one_that_nobody_knows_is_not_there(store: Store) -> None:
    assert a_service(store).polls("lium", limit=10) == []
    for name in ("north", "", "LIUM", "%", "'; DROP TABLE poll; --"):
        with pytest.raises(NotFoundError, match="GET /v1/providers"):
            a_service(store).polls(name, limit=10)
