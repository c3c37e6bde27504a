"""Processes that a fork server makes: real ones, asked for, spoken to, signalled, lost and found."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psutil
import pytest

from sutler.service.fork_server import UNKNOWN_STATUS, ForkedProcess, ForkServer, Request
from tests.service.forked import ask_further, echo, end_with, fail, tell
from tests.service.running import PATIENCE_S, ROOT, until


@pytest.fixture(autouse=True)
def these_functions_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def request(function: Callable[..., object], *, needs: str = "json", **arguments: Any) -> Request:
    return Request("a fork", f"{function.__module__}:{function.__name__}", needs, arguments)


class Server(ForkServer):
    """Lets go of all its processes in the end."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[ForkedProcess] = []

    async def start(self, request: Request, sockets: Sequence[socket.socket] = ()) -> ForkedProcess:
        self._made.append(await super().start(request, sockets))
        return self._made[-1]

    async def let_go(self) -> None:
        for process in self._made:
            process.close()
            await process.wait()
        await self.stop()


def run(scene: Callable[[ForkServer], Awaitable[None]]) -> None:
    async def once() -> None:
        server = Server()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scene(server)
        finally:
            await server.let_go()

    asyncio.run(once())


async def said(process: ForkedProcess) -> str:
    return (await process.reader.read()).decode()


def server_of(process: ForkedProcess) -> psutil.Process:
    return psutil.Process(psutil.Process(process.pid).ppid())


def test_a_process_is_spoken_to_by_its_link_and_by_what_is_passed() -> None:
    async def scene(server: ForkServer) -> None:
        mine, passed = socket.socketpair()
        with mine, passed:
            process = await server.start(request(echo), [passed])
            process.writer.write(b"hello")
            assert await process.reader.readexactly(5) == b"hello"
            assert mine.recv(5) == b"hello"
        assert " ".join(psutil.Process(process.pid).cmdline()).strip() == "a fork"
        process.writer.write_eof()
        assert await process.wait() == 0

    run(scene)


def test_a_second_process_finds_the_modules_that_the_first_needed() -> None:
    async def scene(server: ForkServer) -> None:
        loaded = "'wave' in sys.modules"
        for needs, expected in (("json", "False"), ("wave", "True"), ("json", "True")):
            assert await said(await server.start(request(tell, needs=needs, expression=loaded))) == expected

    run(scene)


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (7, 7), (None, 0), ("gone wrong", 1)])
def test_its_status_is_what_it_left_with(status: object, expected: int) -> None:
    async def scene(server: ForkServer) -> None:
        assert await (await server.start(request(end_with, status=status))).wait() == expected

    run(scene)


def test_signals_reach_it_and_none_that_is_meant_for_all_of_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    async def scene(server: ForkServer) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            process = await server.start(request(echo))
            for pid in (process.pid, server_of(process).pid):
                os.kill(pid, signal.SIGINT)
            os.kill(server_of(process).pid, signal.SIGTERM)
            process.send_signal(number)
            assert await process.wait() == -number
            process.send_signal(number)  # to nobody, least of all to who has got the id since

    run(scene)
    assert capfd.readouterr().err == ""


def test_what_a_process_raises_is_shown_and_what_cannot_be_loaded_too(capfd: pytest.CaptureFixture[str]) -> None:
    async def scene(server: ForkServer) -> None:
        assert await (await server.start(request(fail))).wait() == 1
        missing = Request("a fork", "no_such_module:main", "no_such_module", {})
        assert await (await server.start(missing)).wait() == 1
        assert await said(await server.start(request(tell, expression="1 + 1"))) == "2"

    run(scene)
    said_by_all = capfd.readouterr().err
    assert "ValueError: as it has to" in said_by_all
    assert "No module named 'no_such_module'" in said_by_all


def test_a_process_can_ask_for_others_which_are_not_its_own() -> None:
    async def scene(server: ForkServer) -> None:
        process = await server.start(request(ask_further), [await server.asking()])
        parent, child = eval(await said(process))
        other = await server.start(request(echo))
        assert (parent, child != process.pid) == (server_of(other).pid, True)

    run(scene)


def test_a_server_that_dies_takes_its_processes_along_and_is_started_again() -> None:
    async def scene(server: ForkServer) -> None:
        process = await server.start(request(echo))
        killed = server_of(process)
        killed.kill()
        assert await process.wait() == UNKNOWN_STATUS
        assert await process.reader.read() == b""  # it has ended
        until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
        await asyncio.sleep(0)
        again = await started(server)
        assert server_of(again).pid != killed.pid

    run(scene)


async def started(server: ForkServer) -> ForkedProcess:
    """Tried again while the event loop has not heard yet that the server is gone."""
    while True:
        try:
            return await server.start(request(echo))
        except ConnectionError:
            await asyncio.sleep(0.01)


def test_who_stops_waiting_for_a_process_leaves_none_behind() -> None:
    async def scene(server: ForkServer) -> None:
        (await server.start(request(echo))).close()
        starting = asyncio.ensure_future(server.start(request(echo, needs="tests.service.slow_to_load")))
        await asyncio.sleep(0.05)
        starting.cancel()
        await asyncio.wait({starting})
        last = await server.start(request(echo))
        parent = server_of(last)
        while [child.pid for child in parent.children()] != [last.pid]:
            await asyncio.sleep(0.01)

    run(scene)


def test_a_server_ends_with_those_that_could_ask_and_its_processes_with_it() -> None:
    async def scene(server: ForkServer) -> None:
        process = await server.start(request(echo))
        parent = server_of(process)
        await server.stop()
        assert not parent.is_running()
        assert await process.wait() == UNKNOWN_STATUS
        assert await process.reader.read() == b""

    run(scene)
