"""README.md and the tutorials as programs: console blocks are run, and written anew from what the commands print.

A block holds `$ command` lines, each followed by its output. `cat FILE` gives the content of a file that later
commands use; what asks localhost:8400, or `sutler deployments`, asks a service that is started for it.
`python -m tests.readme [PAGE ...]` (or `make readme`) puts the present output into them.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from os import environ
from pathlib import Path

from tests.postgres import a_folder
from tests.service.running import Running, serving, settings, until

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RUN = (README, *sorted((ROOT / "docs" / "tutorials").glob("*.md")))
"""Pages whose commands are run, each in a folder of its own."""
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
SERVICE = "localhost:8400"
SHOW = ["sutler", "deployments", "show"]


@dataclass(frozen=True, slots=True)
class Step:
    """A command and the output that is shown below it."""

    command: str
    shown: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)

    @property
    def is_sutler(self) -> bool:
        return self.command.startswith("sutler ")


def steps(text: str) -> Iterator[Step]:
    """The commands of all console blocks, in order."""
    for block in BLOCK.findall(text):
        yield from _steps_of(block)


def _steps_of(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield Step(command, shown.rstrip("\n"))


class Reader:
    """Types the commands into a folder that looks like the one that a reader stands in."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self._folder, self._opened = folder, opened
        shutil.copytree(ROOT / "examples", folder / "examples")

    def run(self, step: Step) -> subprocess.CompletedProcess[str]:
        """Runs a command, or writes the file that `cat` shows."""
        if step.command.startswith("cat "):
            (self._folder / step.words[1]).write_text(f"{step.shown}\n", encoding="utf-8")
            return subprocess.CompletedProcess(step.words, 0, stdout=step.shown, stderr="")
        if step.words[:3] == SHOW:
            until(lambda: self._was_looked_at(step.words[3]))
        own = [sys.executable, "-m", "sutler"]
        return subprocess.run(
            [*own, *step.words[1:]] if step.is_sutler else ["bash", "-c", self._addressed(step.command)],
            cwd=self._folder,
            env={**environ, **self._asks(step), "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "100"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def _was_looked_at(self, deployment: str) -> bool:
        """Since the plan was said to be carried out: a reader types more slowly than a look takes."""
        watch = self._service.get(f"/v1/deployments/{deployment}").json()["watch"]
        return watch is not None and watch["holdings"] == "reported"

    def _asks(self, step: Step) -> dict[str, str]:
        """What makes a command ask the service that was started for the page."""
        return {"SUTLER_URL": self._service.url} if step.command.startswith("sutler deployments") else {}

    def _addressed(self, command: str) -> str:
        """To a port of its own: the usual one may be in use."""
        return command.replace(SERVICE, self._service.url.removeprefix("http://")) if SERVICE in command else command

    @cached_property
    def _service(self) -> Running:
        folder = self._opened.enter_context(a_folder())
        return self._opened.enter_context(serving(folder, settings(folder)))


def refreshed(text: str) -> str:
    """The text with the output of every sutler command as it is now."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as opened:
        reader = Reader(Path(name), opened)
        return BLOCK.sub(lambda found: "".join(_rerun(step, reader) for step in _steps_of(found[1])), text)


def _rerun(step: Step, reader: Reader) -> str:
    result = reader.run(step)
    if result.returncode != 0:
        raise SystemExit(f"{step.command}: exit status {result.returncode}\n{result.stderr}")
    lines = [f"{PROMPT}{step.command}", *result.stdout.splitlines()]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or RUN:
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
