"""The reader of feeds, on a real store and real servers: who is slow, or fails, delays nobody else."""

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.traffic import feed_repository, repository
from sutler.service.deployments.traffic.feed_repository import StoredSource
from sutler.service.deployments.traffic.reader import AT_ONCE, MOST_OF_ONE
from sutler.service.deployments.traffic.window import Observation
from tests.service.deployments.traffic.builders import NOW
from tests.service.deployments.traffic.feeds.engines import Engine, Site
from tests.service.deployments.traffic.reading import (
    EVERY_S,
    PATIENT,
    Reading,
    a_source,
    asked,
    fed,
    feeds,
    hanging,
    until,
)
from tests.service.deployments.traffic.site import Deployed
from tests.service.webhooks.api import Api


@pytest.fixture
def vllm() -> Iterator[Engine]:
    """An engine that has served nothing."""
    with Site() as site:
        yield site.engine


def claimed(deployed: Deployed, *, most: int, under_way: tuple[StoredSource, ...] = ()) -> list[StoredSource]:
    """As a reader claims, at an instant that is always the same."""

    async def claim(connection: AsyncConnection) -> list[StoredSource]:
        ahead = NOW + timedelta(hours=1)
        return await feed_repository.claim(
            connection, NOW, ahead=ahead, most=most, most_of_one=MOST_OF_ONE, under_way=under_way
        )

    return deployed.api.office.changed(claim)


def urls(count: int) -> list[str]:
    return [f"http://127.0.0.1:9{number:03d}" for number in range(count)]


def observed(deployed: Deployed) -> list[Observation]:
    id_, long_ago = deployed.id, NOW - timedelta(days=1)
    return deployed.api.office.read(lambda c: repository.recent(c, id_, models=["chat"], since=long_ago))


def feed_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("feed_")]


def test_an_engine_that_hangs_delays_no_other(chat: Deployed, vllm: Engine) -> None:
    reading = Reading(chat.api.office)
    with hanging() as (server, let_go):
        fed(chat, a_source(server.base_url), a_source(vllm.url))

        async def rounds() -> None:
            await until(lambda: server.requests and vllm.asked)
            for number in (2, 3, 4):
                reading.passes()
                await asked(vllm, number)
            assert len(server.requests) == 1  # nor is it asked again meanwhile
            let_go.set()

        reading.while_it_runs(rounds)


def test_a_deployment_of_which_all_engines_hang_leaves_threads_to_others(api: Api, vllm: Engine) -> None:
    stuck, other = Deployed.of(api, "stuck"), Deployed.of(api, "other")
    reading = Reading(api.office)
    with hanging() as (server, let_go):
        fed(stuck, *(a_source(f"{server.base_url}/{number}") for number in range(3 * AT_ONCE)))

        async def rounds() -> None:
            await until(lambda: len(server.requests) == MOST_OF_ONE)
            for number in (1, 2, 3):
                reading.passes()
                await asked(vllm, number)
            assert len(server.requests) == MOST_OF_ONE
            let_go.set()

        fed(other, a_source(vllm.url))
        reading.while_it_runs(rounds)


def test_more_feeds_than_threads_are_all_read(chat: Deployed, vllm: Engine) -> None:
    reading = Reading(chat.api.office)
    fed(chat, *(a_source(vllm.url, selector={"number": str(number)}) for number in range(3 * AT_ONCE)))

    async def one_round() -> None:
        await until(lambda: len(vllm.asked) == 3 * AT_ONCE)

    reading.while_it_runs(one_round)


def test_deployments_take_turns_whoever_has_waited_longest(api: Api) -> None:
    large, small = Deployed.of(api, "large"), Deployed.of(api, "small")
    of_large = fed(large, *map(a_source, urls(30)))
    of_small = fed(small, *map(a_source, urls(2)))
    first = claimed(large, most=4)
    assert [stored.deployment_id for stored in first].count(of_small) == 2
    assert [stored.deployment_id for stored in first].count(of_large) == 2


def test_what_is_being_read_counts_against_a_deployments_share(api: Api) -> None:
    chat = Deployed.of(api)
    fed(chat, *map(a_source, urls(3 * MOST_OF_ONE)))
    first = tuple(claimed(chat, most=3))
    rest = claimed(chat, most=AT_ONCE, under_way=first)
    assert (len(first), len(rest)) == (3, MOST_OF_ONE - 3)
    assert not {stored.id for stored in first} & {stored.id for stored in rest}


def test_a_feed_that_is_being_read_is_not_claimed_though_it_is_due(chat: Deployed) -> None:
    fed(chat, *map(a_source, urls(2)))
    one, other = feeds(chat)
    assert [stored.id for stored in claimed(chat, most=AT_ONCE, under_way=(one,))] == [other.id]


def test_a_reader_that_is_stopped_leaves_no_thread_and_asks_for_nothing_more(chat: Deployed) -> None:
    reading = Reading(chat.api.office)
    with hanging() as (server, let_go):
        fed(chat, a_source(server.base_url, kind="prometheus"))  # of which several questions are asked

        async def begin() -> None:
            await until(lambda: server.requests)
            assert feed_threads()
            threading.Timer(0.1, let_go.set).start()

        reading.while_it_runs(begin)
        assert len(server.requests) == 1
    assert feed_threads() == []
    [stored] = feeds(chat)
    assert (stored.error, stored.read_at) == (None, None)


def test_a_defect_of_sutler_is_told_by_the_feed_and_loses_no_reading(
    chat: Deployed, vllm: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(url: str, **_: object) -> bytes:
        raise KeyError(url)

    reading = Reading(chat.api.office)
    id_ = fed(chat, a_source(vllm.url))
    vllm.serve(100, input_tokens=480, output_tokens=210)
    reading.while_it_runs(lambda: reading.read(id_))
    [before] = feeds(chat)

    reading.get = broken
    reading.passes()
    reading.while_it_runs(lambda: reading.failed(id_, 1))
    [after] = feeds(chat)
    shown = chat.api.ask_at("GET", f"/deployments/{chat.name}/feeds").json()["feeds"][0]
    assert shown["error"] == f"could not be read: a defect of sutler, see its log for feed {after.id}"
    assert f"feed {after.id} could not be read: a defect of sutler" in caplog.text
    assert (after.reading, after.read_at) == (before.reading, before.read_at)
    assert after.due_at == reading.at + timedelta(seconds=2 * EVERY_S)

    reading.get = PATIENT
    reading.passes(2 * EVERY_S)
    vllm.serve(50, input_tokens=480, output_tokens=210)
    reading.while_it_runs(lambda: reading.read(id_))
    [restored] = feeds(chat)
    assert (restored.error, restored.failures) == (None, 0)
    assert [o.requests for o in observed(chat)] == [pytest.approx(50)]  # since the reading before the defect


def test_the_log_tells_once_that_a_feed_fails_and_that_it_answers_again(
    chat: Deployed, vllm: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sutler.traffic")
    reading = Reading(chat.api.office)
    id_ = fed(chat, replace(a_source(vllm.url), url=f"{vllm.url}/metrics?token=hunter2"))

    async def fails_and_answers() -> None:
        vllm.answer = (503, b"")
        for number in (1, 2, 3):
            await reading.failed(id_, number)
            reading.passes(600)
        vllm.answer = None
        await reading.failed(id_, 0)

    reading.while_it_runs(fails_and_answers)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"chat: the feed of model chat at {vllm.url} fails: answers 503"),
        ("INFO", f"chat: the feed of model chat at {vllm.url} answers, after 3 failures"),
    ]
