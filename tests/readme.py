"""README.md as a program: its console blocks can be run, and be written anew from what the commands print.

A block holds `$ command` lines, each followed by its output. `cat FILE` gives the content of a file that later
commands use. `python -m tests.readme` (or `make readme`) puts the present output into README.md.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from os import environ
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
PROMPT = "$ "


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
        return self.words[0] == "sutler"


def steps(text: str) -> Iterator[Step]:
    """The commands of all console blocks, in order."""
    for block in BLOCK.findall(text):
        yield from _steps_of(block)


def _steps_of(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield Step(command, shown.rstrip("\n"))


def run(step: Step, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a sutler command, or writes the file that `cat` shows, in a folder that `prepare` made."""
    if step.words[0] == "cat":
        (folder / step.words[1]).write_text(f"{step.shown}\n", encoding="utf-8")
        return subprocess.CompletedProcess(step.words, 0, stdout=step.shown, stderr="")
    return subprocess.run(
        [sys.executable, "-m", "service.cli.main", *step.words[1:]],
        cwd=folder,
        env={**environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def prepare(folder: Path) -> None:
    """Makes the folder look like the one that a reader stands in."""
    shutil.copytree(ROOT / "examples", folder / "examples")


def refreshed(text: str) -> str:
    """The text with the output of every sutler command as it is now."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        return BLOCK.sub(lambda found: "".join(_rerun(step, folder) for step in _steps_of(found[1])), text)


def _rerun(step: Step, folder: Path) -> str:
    result = run(step, folder)
    if result.returncode != 0:
        raise SystemExit(f"{step.command}: exit status {result.returncode}\n{result.stderr}")
    lines = [f"{PROMPT}{step.command}", *result.stdout.rstrip("\n").split("\n")]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
