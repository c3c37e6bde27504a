"""A family ends: killed, interrupted or told to. It leaves nothing behind, and the next one goes on where it was."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

from sutler.service.db import embedded
from tests.postgres import Server, a_folder
from tests.service.builders import a_slow_problem
from tests.service.faults.scenes import asked, has_gone, kill, of, until_solving
from tests.service.running import DEAD_SOON, Running, serving, settings, until

ENDLESS: Final = a_slow_problem(time_limit_s=60)


def everybody(family: Running, folder: Path) -> list[psutil.Process]:
    """All its processes, with solvers and database."""
    server = psutil.Process(Server(folder / "data").postmaster)
    return [of(family), *family.children(), server, *server.children()]


def all_gone(processes: Sequence[psutil.Process]) -> bool:
    return all(has_gone(process) for process in processes)


def interrupt(family: Running) -> None:
    """As a terminal does when somebody presses Ctrl-C: whoever is in its foreground group gets the signal."""
    group = os.getpgid(family.process.pid)
    for process in [of(family), *family.children()]:
        if os.getpgid(process.pid) == group:
            process.send_signal(signal.SIGINT)


def terminate(family: Running) -> None:
    family.process.send_signal(signal.SIGTERM)


def test_whatever_ends_a_family_the_next_one_goes_on_with_its_plan() -> None:
    """Killed, its processes find out and end by themselves; interrupted and told to end, it hands its plan back."""
    with a_folder() as folder:
        environment = settings(folder, **DEAD_SOON)
        with serving(folder, environment) as family:
            url = asked(family, ENDLESS)
            until_solving(family, url)
            processes = everybody(family, folder)
            kill(of(family))
            family.process.wait()  # a zombie would be taken for somebody who uses the database
            until(lambda: all_gone(processes))
            assert not (folder / "data" / embedded.FOLDER / "postmaster.pid").exists()
        for attempt, end in ((2, interrupt), (3, terminate)):
            with serving(folder, environment) as family:
                until_solving(family, url, attempt=attempt)
                processes = everybody(family, folder)
                end(family)
                assert family.process.wait() == 0
                assert all_gone(processes)
                assert "Traceback" not in family.said(), family.said()
