"""What measures the service: it asks when it should, loses no answer, and counts every wrong one."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.service_latencies import latencies_of, percentile
from benchmarks.service_load import BEGIN, Order, Outcome, carry_out, schedule
from benchmarks.service_polls import News, Told, Wish, hold
from benchmarks.service_wakes import wakes_of
from benchmarks.tests.answering import BODY, ETAG, RIGHT, Asked, Reply, Script, an_answer, answering, one_by_one

ROOT: Final = Path(__file__).parents[2]
PLAN: Final = "/v1/deployments/chat/plan"


def an_order(**others: Any) -> Order:
    given: Order = {
        "host": "127.0.0.1",
        "port": 0,
        "target": PLAN,
        "key": None,
        "etag": ETAG,
        "body_bytes": len(BODY),
        "loop": "open",
        "connections": 4,
        "rate_rps": 200.0,
        "seconds": 0.25,
    }
    return {**given, **others}  # type: ignore[typeddict-item]


def carried_out(order: Order, script: Script, *, grace_s: float = 10.0) -> tuple[Outcome, Asked]:
    async def both() -> tuple[Outcome, Asked]:
        async with answering(script) as asked:
            order["port"] = asked.port
            return await carry_out(order, ready=lambda: None, grace_s=grace_s), asked

    return asyncio.run(both())


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [percentile(ordered, fraction) for fraction in (0.5, 0.9, 0.99, 1.0)] == [50.0, 90.0, 99.0, 100.0]
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile([7.0], 0.01) == 7.0


def test_latencies_are_milliseconds_in_any_order() -> None:
    found = latencies_of([0.003, 0.001, 0.002])
    assert found == {"count": 3, "p50_ms": 2.0, "p90_ms": 3.0, "p99_ms": 3.0, "max_ms": 3.0}


def test_no_latencies_at_all_are_no_result() -> None:
    with pytest.raises(ValueError, match="no latency"):
        latencies_of([])


def test_requests_are_due_evenly() -> None:
    moments = schedule(500.0, 2.0)
    assert len(moments) == 1_000
    assert moments[0] == 0.0
    assert moments[-1] == pytest.approx(1.998)
    assert all(later - earlier == pytest.approx(0.002) for earlier, later in pairwise(moments))


def test_all_that_is_due_is_asked_and_answered_once() -> None:
    outcome, asked = carried_out(an_order(), lambda *_: RIGHT)
    assert asked.targets == [PLAN] * 50
    assert (outcome["asked"], len(outcome["latencies_s"]), outcome["errors"]) == (50, 50, {})
    assert asked.connections == 4


def test_a_stall_delays_all_that_comes_due_meanwhile() -> None:
    stall_s = 0.3
    order = an_order(connections=1, rate_rps=100.0, seconds=0.2)
    outcome, _ = carried_out(order, one_by_one(Reply(an_answer(), after_s=stall_s)))
    answered_s = [due_s + late_s for due_s, late_s in zip(schedule(100.0, 0.2), outcome["latencies_s"], strict=True)]
    assert min(answered_s) >= 0.99 * stall_s
    assert len(outcome["late_s"]) == 1


def test_on_a_schedule_nothing_is_sent_before_it_is_due() -> None:
    outcome, _ = carried_out(an_order(), lambda *_: RIGHT)
    assert min(outcome["late_s"]) >= 0.0
    assert outcome["seconds"] >= schedule(200.0, 0.25)[-1]


def test_as_fast_as_it_goes_every_answer_is_counted() -> None:
    outcome, asked = carried_out(an_order(loop="closed"), lambda *_: RIGHT)
    assert outcome["asked"] == len(asked.targets) == len(outcome["latencies_s"])
    assert outcome["seconds"] >= 0.25
    assert outcome["late_s"] == []


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_every_wrong_answer_is_counted(loop: str) -> None:
    script = one_by_one(
        Reply(an_answer(etag='"another"')),
        Reply(an_answer(body=BODY[:-1])),
        Reply(an_answer(status="404 Not Found")),
        Reply(an_answer(status="503 Service Unavailable")),
        Reply(None, ends=True),
        Reply(an_answer()[:-5], ends=True),
        Reply(b"SSH-2.0-server\r\n\r\n"),
        Reply(an_answer() + an_answer()),
    )
    outcome, asked = carried_out(an_order(loop=loop), script)
    assert outcome["errors"] == {
        "another ETag": 1,
        "another length": 1,
        "status 404": 1,
        "status 503": 1,
        "the connection was closed": 1,
        "the connection was closed within an answer": 1,
        "not HTTP/1.1 with a Content-Length": 1,
        "more was answered than asked": 1,
    }
    assert outcome["asked"] == len(outcome["latencies_s"]) + 8 == len(asked.targets)
    assert asked.connections == 4 + 4


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_what_is_never_answered_is_counted(loop: str) -> None:
    order = an_order(loop=loop, connections=2, seconds=0.1)
    outcome, asked = carried_out(order, one_by_one(Reply(None, after_s=60.0)), grace_s=0.1)
    assert outcome["errors"] == {"not answered": 1}
    assert outcome["asked"] == len(outcome["latencies_s"]) + 1 == len(asked.targets)


def test_what_is_due_behind_a_service_that_hangs_is_not_answered() -> None:
    order = an_order(connections=1, rate_rps=100.0, seconds=0.1)
    outcome, asked = carried_out(order, lambda *_: Reply(None, after_s=60.0), grace_s=0.05)
    assert outcome["errors"] == {"not answered": 10}
    assert len(asked.targets) == 1


def test_the_key_is_shown_with_every_request() -> None:
    outcome, asked = carried_out(an_order(key="k1"), lambda *_: RIGHT)
    assert outcome["errors"] == {}
    assert all("Authorization: Bearer k1" in head.split("\r\n") for head in asked.heads)


def test_the_generator_is_a_process_of_its_own() -> None:
    async def both() -> tuple[str, Asked]:
        async with answering(lambda *_: RIGHT) as asked:
            order = json.dumps(an_order(port=asked.port))
            command = [sys.executable, "-m", "benchmarks.service_load"]
            done = await asyncio.to_thread(
                subprocess.run, command, input=order, capture_output=True, text=True, cwd=ROOT, check=True
            )
            return done.stdout, asked

    said, asked = asyncio.run(both())
    begin, _, outcome = said.partition("\n")
    assert begin == BEGIN
    assert json.loads(outcome)["asked"] == len(asked.targets) == 50


def held(script: Script, *, clients: int, until: Callable[[Asked], bool]) -> tuple[Told, Asked]:
    async def both() -> tuple[Told, Asked]:
        async with answering(script) as asked:
            wish = Wish(host="127.0.0.1", port=asked.port, target=PLAN, clients=clients, revision=1, wait_s=60.0)

            async def enough() -> None:
                async with asyncio.timeout(30):
                    while not until(asked):
                        await asyncio.sleep(0.01)

            return await hold(wish, held=lambda: None, until=enough), asked

    return asyncio.run(both())


def a_plan(revision: int) -> Reply:
    content = f'{{"schema": "sutler/plan/v1", "revision": {revision}, "other": {{"revision": 99}}}}'
    return Reply(an_answer(body=content.encode()))


def test_each_client_asks_for_what_comes_after_the_last_it_was_told() -> None:
    def script(_: int, target: str) -> Reply:
        return a_plan(2) if "after=1" in target else Reply(None, after_s=60.0)

    told, asked = held(script, clients=5, until=lambda asked: len(asked.targets) == 10)
    assert sorted((news["client"], news["revision"]) for news in told["news"]) == [(n, 2) for n in range(5)]
    assert sorted(asked.targets) == 5 * [f"{PLAN}?after=1&wait_s=60"] + 5 * [f"{PLAN}?after=2&wait_s=60"]
    assert told["errors"] == {}


def test_a_poll_that_ends_without_news_is_made_again() -> None:
    unchanged = Reply(b'HTTP/1.1 304 Not Modified\r\nETag: "one"\r\n\r\n')
    script = one_by_one(unchanged, unchanged, then=Reply(None, after_s=60.0))
    told, asked = held(script, clients=2, until=lambda asked: len(asked.targets) == 4)
    assert told == {"news": [], "in_vain": 2, "errors": {}}
    assert set(asked.targets) == {f"{PLAN}?after=1&wait_s=60"}


def test_a_poll_that_fails_is_counted() -> None:
    script = one_by_one(Reply(an_answer(status="500 Oops")), Reply(None, ends=True), then=Reply(None, after_s=60.0))
    told, _ = held(script, clients=3, until=lambda asked: len(asked.targets) == 3)
    assert told["errors"] == {"status 500": 1, "the connection was closed": 1}


def test_who_misses_a_plan_and_who_is_told_twice_is_counted() -> None:
    def news(client: int, revision: int, at_s: float) -> News:
        return News(client=client, revision=revision, at_s=at_s)

    heard = [news(0, 2, 10.1), news(1, 2, 10.2), news(2, 2, 10.6), news(0, 3, 20.1), news(0, 3, 20.2)]
    found = wakes_of(Told(news=heard, in_vain=0, errors={}), {2: 10.0, 3: 20.0}, clients=3)
    assert found["first_s"] == pytest.approx([0.1, 0.1])
    assert found["median_s"] == pytest.approx([0.2, 0.15])
    assert found["last_s"] == pytest.approx([0.6, 0.2])
    assert (found["untold"], found["doubled"]) == (2, 1)


def test_a_plan_that_reaches_nobody_is_no_result() -> None:
    with pytest.raises(ValueError, match="reached nobody"):
        wakes_of(Told(news=[], in_vain=0, errors={}), {2: 10.0}, clients=3)
