"""Signs of life reach whoever wants them, and keep nobody waiting who gives them."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sutler.service.processes import heart
from sutler.service.processes.heart import beat, beat_beside, to_parent, to_systemd
from sutler.service.settings import notify_socket
from tests.postgres import a_folder
from tests.service.running import ROOT


def test_systemd_hears_of_life_where_it_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_folder() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(folder / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        beat_beside(to_systemd())
        assert listening.recv(64) == b"WATCHDOG=1"


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    to_systemd()()
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    to_systemd()()


def test_an_abstract_address_is_written_with_an_at_sign() -> None:
    assert notify_socket({"NOTIFY_SOCKET": "@org/systemd"}) == "\0org/systemd"
    assert notify_socket({}) == ""


def test_a_parent_that_does_not_listen_keeps_nobody_waiting() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        tell = to_parent(ours)
        for _ in range(100_000):
            tell()
    tell()  # it has gone


def test_a_loop_that_turns_tells_at_once() -> None:
    async def run() -> None:
        told = asyncio.Event()
        beating = asyncio.ensure_future(beat(told.set))
        await told.wait()
        beating.cancel()

    asyncio.run(run())


HANGS = """
import threading, time
from sutler.service.processes import heart
heart.BEAT_S = 0.1
tell = heart.alone(silent_s=1.0)
for _ in range({times}):
    tell()
    time.sleep({each_s})
if {times} == 2:
    heart.ending()
    time.sleep(3)
"""


@pytest.mark.parametrize(
    ("times", "each_s", "status"),
    [(1, 60.0, heart.HUNG), (20, 0.1, 0), (0, 0.0, 0)],
    ids=["hangs", "lives", "starts"],
)
def test_one_that_hangs_alone_ends_itself_and_says_where_it_hung(times: int, each_s: float, status: int) -> None:
    code = HANGS.format(times=times, each_s=each_s)
    ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, timeout=50, capture_output=True)
    assert ended.returncode == status
    assert (b"<string>" in ended.stderr) == bool(status)
