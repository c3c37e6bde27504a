"""A process that is told to end does so whenever the signal comes: just before it waits, or while a child starts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
ENDED_S: Final = 30

# The signal comes 1 to 100 us after the timer is set: before the wait, at any of its steps, and while it blocks.
AROUND_THE_WAIT: Final = """
import signal
from sutler.service.processes.ending import noted

until_told_to_end = noted((signal.SIGALRM,))
for round in range(4_000):
    signal.setitimer(signal.ITIMER_REAL, (1 + round % 100) * 1e-6)
    until_told_to_end()
"""

LONG_BEFORE_THE_WAIT: Final = """
import signal
from sutler.service.processes.ending import noted, signals_to_end

until_told_to_end = noted(signals_to_end())
signal.raise_signal(signal.{name})
until_told_to_end()
"""

ANOTHER_ONE_FIRST: Final = """
import signal, threading
from sutler.service.processes.ending import noted, signals_to_end

until_told_to_end = noted(signals_to_end())
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.raise_signal(signal.SIGUSR1)
threading.Timer(0.2, lambda: (print("told"), signal.raise_signal(signal.SIGTERM))).start()
until_told_to_end()
print("ended")
"""

WHILE_A_CHILD_STARTS: Final = """
import asyncio, os, signal, socket
from contextlib import nullcontext
from sutler.service.fork_server import ForkServer, Request
from sutler.service.processes import family

starting = ForkServer.start

async def told_meanwhile(*asked):
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
    return await starting(*asked)

ForkServer.start = told_meanwhile
entry, needs = "sutler.service.cli.serve:as_child", "sutler.service.processes.scheduler"
scheduler = Request("sutler", entry, needs, {"role": "scheduler", "needs_key": False})
with socket.create_server(("127.0.0.1", 0)) as listening:
    family.run([scheduler], listening, opened=nullcontext())
"""


def said(script: str) -> str:
    """Raises where it does not end, or not well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=ENDED_S
    ).stdout


def test_a_signal_that_comes_just_before_the_wait_or_within_it_ends_it() -> None:
    said(AROUND_THE_WAIT)


def test_a_signal_that_came_long_before_the_wait_ends_it() -> None:
    for name in ("SIGTERM", "SIGINT"):
        said(LONG_BEFORE_THE_WAIT.format(name=name))


def test_only_what_tells_a_process_to_end_ends_the_wait() -> None:
    assert said(ANOTHER_ONE_FIRST) == "told\nended\n"


@pytest.mark.slow
def test_a_child_that_was_being_started_when_its_parent_was_told_to_end_ends_too() -> None:
    """At once: a parent that has not told it waits for its whole grace, and kills it."""
    said(WHILE_A_CHILD_STARTS)
