"""A child ends with its parent, whatever was said last between them."""

import signal
import subprocess
import sys
from typing import Final

import pytest

from tests.service.running import ROOT

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
