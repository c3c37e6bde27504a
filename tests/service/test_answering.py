"""Questions to a process of its own: answered, lost, late, and never left behind."""

import asyncio
import os
import select
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sutler.service import fork_server
from sutler.service.answering import (
    AnsweringProcess,
    LateError,
    Message,
    NoAnswerError,
    NoProcessError,
    TooLargeError,
    packed,
    serve,
)
from sutler.service.fork_server import ForkServer, Request
from tests.service.running import ROOT


@pytest.fixture(autouse=True)
def these_functions_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


MOST_BYTES = 50_000_000


def main(link: socket.socket) -> None:
    serve(link, answered)


def answered(question: str, tell: Callable[[Any], None]) -> Message:
    if question == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while question == "hang":
        signal.pause()
    tell("half")
    if question == "large":
        return "answer", b" " * (2 * MOST_BYTES)
    return "answer", question.upper()


def bounded(link: socket.socket) -> None:
    serve(link, answered, most_bytes=MOST_BYTES)


REQUEST = Request("an answerer", f"{__name__}:main", "json", {})


def run(scene: Callable[[ForkServer], Awaitable[None]]) -> None:
    async def once() -> None:
        server = ForkServer()
        try:
            await scene(server)
        finally:
            await server.stop()

    asyncio.run(once())


def test_an_answer_comes_with_its_progress_and_the_process_stays() -> None:
    async def scene(server: ForkServer) -> None:
        process, told = AnsweringProcess(server, REQUEST), list[str]()
        assert await process.answer("one", limit_s=60, on_progress=told.append) == ("answer", "ONE")
        first = (await process.start()).pid
        assert await process.answer("two", limit_s=60) == ("answer", "TWO")
        assert ((await process.start()).pid, told) == (first, ["half"])
        await process.stop()

    run(scene)


@pytest.mark.slow
def test_one_that_dies_or_hangs_gives_none_and_the_next_question_finds_another() -> None:
    async def scene(server: ForkServer) -> None:
        process = AnsweringProcess(server, REQUEST)
        with pytest.raises(NoAnswerError, match="status -9"):
            await process.answer("die", limit_s=60)
        with pytest.raises(LateError, match="did not end within"):
            await process.answer("hang", limit_s=0.2)
        assert await process.answer("one", limit_s=60) == ("answer", "ONE")
        await process.stop()

    run(scene)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no other system keeps the limit")
@pytest.mark.parametrize("question", ["large", " " * (2 * MOST_BYTES)], ids=["answer", "question"])
def test_what_is_too_large_for_its_memory_ends_the_process_and_the_next_question_finds_another(question: str) -> None:
    async def scene(server: ForkServer) -> None:
        process = AnsweringProcess(server, Request("a small one", f"{__name__}:bounded", "json", {}))
        with pytest.raises(TooLargeError):
            await process.answer(question, limit_s=60)
        assert await process.answer("one", limit_s=60) == ("answer", "ONE")
        await process.stop()

    run(scene)


@pytest.mark.slow
def test_a_fork_server_that_hangs_costs_no_question_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(server: ForkServer) -> None:
        process = AnsweringProcess(server, REQUEST)
        assert await process.answer("one", limit_s=60) == ("answer", "ONE")
        await process.stop()
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        assert not await server.answers(within_s=0.1)
        with monkeypatch.context() as patch:
            patch.setattr(fork_server, "ANSWER_S", 0.5)
            with pytest.raises(NoProcessError, match="has not answered"):
                await process.answer("two", limit_s=0.1)
        assert await process.answer("three", limit_s=60) == ("answer", "THREE")
        assert await server.answers(within_s=60)
        await process.stop()

    run(scene)


def test_who_asked_may_die_with_something_unread_and_leaves_nothing_behind() -> None:
    async def scene(server: ForkServer) -> None:
        process = await server.start(REQUEST)
        transport: Any = process.writer.transport
        transport.pause_reading()
        process.writer.write(packed("one"))
        while not select.select([transport.get_extra_info("socket").fileno()], [], [], 0)[0]:
            await asyncio.sleep(0.01)
        process.close()
        assert await process.wait() == 0

    run(scene)
