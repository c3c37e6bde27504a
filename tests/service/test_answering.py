"""Questions to a process of its own: answered, lost, late, and never left behind."""

import asyncio
import os
import select
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sutler.service.answering import AnsweringProcess, LateError, Message, NoAnswerError, packed, serve
from sutler.service.fork_server import ForkServer, Request
from tests.service.running import ROOT


@pytest.fixture(autouse=True)
def these_functions_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def main(link: socket.socket) -> None:
    serve(link, answered)


def answered(question: str, tell: Callable[[Any], None]) -> Message:
    if question == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    while question == "hang":
        signal.pause()
    tell("half")
    return "answer", question.upper()


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
