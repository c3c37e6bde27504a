"""Large bodies are checked beside the API's process, within bounds of time and memory, one of a caller at a time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.fork_server import ForkServer
from sutler.service.web import checking
from sutler.service.web.caller import LOCAL
from sutler.service.web.checking import AT_ONCE, MOST_WAITING, Checker
from sutler.service.web.errors import NotYetError, TooManyRequestsError
from tests.service.builders import a_problem, a_snapshot, an_offer

LONG = b"[" + b"1," * 900_000 + b"1]"  # in YAML takes a second or more


def asked(ask: Callable[[Checker], Awaitable[Any]]) -> Any:
    """What comes of asking a checker of its own."""

    async def run() -> Any:
        checker = Checker(ForkServer())
        try:
            return await ask(checker)
        finally:
            await checker.stop()

    return asyncio.run(run())


def checked(content: bytes, *, is_json: bool = True) -> ProblemDocument:
    async def ask(checker: Checker) -> ProblemDocument:
        return await checker.checked(ProblemDocument, content, is_json=is_json, actor="key/1")

    document: ProblemDocument = asked(ask)
    return document


def refusal(content: bytes, *, is_json: bool = True) -> str:
    with pytest.raises(DocumentError) as caught:
        checked(content, is_json=is_json)
    return str(caught.value)


def processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.name() == "sutler bodies"]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


def test_the_document_is_the_one_that_was_sent() -> None:
    offers = [an_offer(offer_id=str(number)) for number in range(1000)]
    problem = a_problem(market={"offers": a_snapshot(*offers)})
    found = checked(json.dumps(problem).encode())
    assert found == ProblemDocument.model_validate(problem)
    assert isinstance(found.market.offers, MarketDocument)
    assert len(found.market.offers.offers) == 1000


@pytest.mark.slow
def test_what_is_wrong_is_told_as_for_small_bodies() -> None:
    assert "k99: 1: unknown key" in refusal(json.dumps(a_problem(**{f"k{n}": 1 for n in range(5000)})).encode())
    assert refusal(b"\xff" * 50_000) == "body: is not UTF-8 text"


@pytest.mark.slow
def test_what_takes_too_much_memory_to_be_told_of_is_refused() -> None:
    assert "too much memory" in refusal(b'{"models": [' + b"{}," * 2_000_000 + b"{}]}")


def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "LIMIT_S", 0.2)
    assert "cannot be read within 0.2 s" in refusal(LONG, is_json=False)


def test_a_caller_who_leaves_ends_the_reading() -> None:
    async def leave(checker: Checker) -> None:
        reading = asyncio.ensure_future(checker.checked(ProblemDocument, LONG, is_json=False, actor="key/1"))
        await until(lambda: bool(processes()))
        reading.cancel()
        await asyncio.wait({reading})
        await until(lambda: not processes())  # one that was still being made ends by its link
        small = json.dumps(a_problem()).encode()
        assert await checker.checked(ProblemDocument, small, is_json=True, actor="key/1")

    asked(leave)


def test_who_needs_no_key_waits_however_many_do() -> None:
    async def many(checker: Checker) -> None:
        small = json.dumps(a_problem()).encode()
        asking = [
            checker.checked(ProblemDocument, small, is_json=True, actor=LOCAL.actor) for _ in range(2 * MOST_WAITING)
        ]
        assert len(await asyncio.gather(*asking)) == 2 * MOST_WAITING

    asked(many)


def test_without_a_process_the_body_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> None:
        raise ConnectionError("the fork server has died")

    monkeypatch.setattr(ForkServer, "start", none)
    with pytest.raises(NotYetError, match="ask again"):
        checked(json.dumps(a_problem()).encode())


@pytest.mark.slow
def test_of_one_caller_one_is_read_at_a_time_and_few_wait() -> None:
    async def flood(checker: Checker) -> None:
        flooding = [
            asyncio.ensure_future(checker.checked(ProblemDocument, LONG, is_json=False, actor="key/1"))
            for _ in range(MOST_WAITING)
        ]
        await until(lambda: bool(processes()))
        with pytest.raises(TooManyRequestsError, match="one after the other"):
            await checker.checked(ProblemDocument, LONG, is_json=False, actor="key/1")
        small = json.dumps(a_problem()).encode()
        assert await checker.checked(ProblemDocument, small, is_json=True, actor="key/2")
        assert not flooding[-1].done()
        assert len(processes()) <= AT_ONCE
        for one in flooding:
            one.cancel()
        await asyncio.wait(flooding)

    asked(flood)
