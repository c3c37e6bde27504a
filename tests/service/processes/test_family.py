"""Children of one parent: how many there are, and that they end with it, whatever was said last between them."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.postgres import Server
from tests.service.running import PYTHON, ROOT, serving, settings, until

A_CHILD: Final = """
import socket, time
from sutler.service.processes.family import follow_parent
mine, parents = socket.socketpair()
parents.send(b"!")
follow_parent(mine)
{last}
parents.close()
time.sleep(120)
"""


@pytest.mark.parametrize("last", ["pass", "mine.send(b'.')"], ids=["all was read", "a sign of life was not"])
def test_without_a_parent_a_child_is_told_to_end(last: str) -> None:
    child = subprocess.run([sys.executable, "-c", A_CHILD.format(last=last)], check=False, cwd=ROOT, timeout=100)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.slow
def test_as_many_workers_as_are_asked_for_are_kept(postgres: Server, tmp_path: Path) -> None:
    postgres.create("several_workers")
    environment = settings(tmp_path, SUTLER_DATABASE_URL=postgres.url("several_workers"))
    with serving(tmp_path, environment, "--workers", "2") as running:
        first, second = until(lambda: found if len(found := running.titled("--role worker")) == 2 else None)
        first.kill()
        until(lambda: len({one.pid for one in running.titled("--role worker")} - {first.pid}) == 2)
        assert second.is_running()


def test_roles_of_their_own_are_one_process_each() -> None:
    command = [*PYTHON, "serve", "--role", "worker", "--workers", "2"]
    refused = subprocess.run(command, check=False, cwd=ROOT, timeout=100, capture_output=True, text=True)
    assert (refused.returncode, "--workers 2: is for --role all" in refused.stderr) == (2, True)
