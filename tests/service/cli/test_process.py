"""The command line as a process: interrupts, closed pipes, encodings, what is imported when."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.builders import a_problem

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "sutler"]


def sutler(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, check=False, env={**os.environ, **environment}
    )


SAYS_WHEN_IT_SOLVES = """
import sys
from ortools.math_opt.python import mathopt
from sutler.service.cli.main import run

def solve(*of, _solve=mathopt.solve, **how):
    print("solving", file=sys.stderr, flush=True)
    return _solve(*of, **how)

mathopt.solve = solve
run()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "examples/vast_like.yaml", "--json", "--relative-gap", "0.000001"],  # whose MILP takes seconds
        ["compare", "examples/vast_like.yaml", "--json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_while_compiled_code_solves_ends_the_process_at_once(arguments: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAYS_WHEN_IT_SOLVES, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # what follows the line is read below
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"solving\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert (out, err.replace(b"solving\n", b"")) == (b"", b"interrupted\n")


LOSES_INTERRUPTS = """
import os, signal, time
from sutler.service.cli.terminal import interrupts

class Losing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

interrupts.watch()
Losing()
try:
    while True:
        time.sleep(0.05)
finally:
    time.sleep(3 * interrupts.AGAIN_S)
    print("tidied up", flush=True)
"""


def test_an_interrupt_that_is_lost_comes_again_and_disturbs_no_tidying_up() -> None:
    """As compiled modules lose it that call Python and cannot pass on what that raises."""
    run = subprocess.run(
        [sys.executable, "-c", LOSES_INTERRUPTS], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert run.stdout == b"tidied up\n", run.stderr
    assert run.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    "imported", [b"importlib.metadata", b"typer", b"sutler.solver.catalog", b"sutler.service.cli.plan"]
)
def test_ctrl_c_before_the_solve_leaves_no_traceback(imported: bytes) -> None:
    """From the first import of the command itself; the interpreter says when each has ended."""
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "plan", "examples/two_models.yaml"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,  # what is read here ends with a line, and the rest is read below
    )
    assert process.stderr is not None
    assert any(line.split()[-1] == imported for line in process.stderr)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith(b"import time:")]
    assert said == [b"interrupted"]
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [*COMMAND, "schema", "problem"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=20) == 0
    process.stderr.close()


def test_a_terminal_that_knows_only_ascii_gets_a_table_too() -> None:
    result = sutler("plan", "examples/appendix_c.yaml", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 0
    assert result.stdout.decode("ascii").startswith("All requests done in 28.43")


def test_json_is_utf_8_whatever_the_terminal(tmp_path: Path) -> None:
    problem = json.loads(json.dumps(a_problem()).replace('"chat"', '"größe"'))
    (tmp_path / "problem.json").write_text(json.dumps(problem))
    result = sutler("plan", str(tmp_path / "problem.json"), "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert json.loads(result.stdout.decode("utf-8"))["replicas"][0]["model"] == "größe"


def test_a_full_disk_is_told_without_a_traceback() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb") as full:
        arguments = [*COMMAND, "plan", "examples/appendix_c.yaml", "--json"]
        result = subprocess.run(arguments, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"error: standard output: no space left on device")


def test_help_imports_nothing_that_is_slow() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from sutler.service.cli.app import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print(sorted({'scipy', 'ortools', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True)
    assert result.stdout == "[]\n"


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """What a person sees: both streams on a pseudo-terminal."""
    ours, theirs = os.openpty()
    settings = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    settings |= {"TERM": "xterm-256color", **environment}
    process = subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # Linux ends a pseudo-terminal with an error
        while part := os.read(ours, 65_536):
            seen += part
    os.close(ours)
    process.wait(timeout=60)
    return seen


def test_colour_is_for_terminals_that_want_it() -> None:
    assert b"\x1b[1;32mAll requests done" in on_a_terminal("plan", "examples/appendix_c.yaml")
    assert b"\x1b" not in on_a_terminal("plan", "examples/appendix_c.yaml", NO_COLOR="1")


def test_a_comparison_on_a_terminal_says_how_far_it_is() -> None:
    seen = on_a_terminal("compare", "examples/paper_case.yaml", "--only", "homogeneous")
    assert re.search(rb"\d+ done \xc2\xb7 (sutler|homogeneous)", seen)
    assert b"\x1b[1;32msutler serves 8.6" in seen


def test_a_command_leaves_no_database_server_behind(own_settings: Path) -> None:
    assert sutler("market", "offers").returncode == 4  # nobody has polled yet
    assert (own_settings / "postgres" / "PG_VERSION").exists()
    assert not (own_settings / "postgres" / "postmaster.pid").exists()


def test_serving_ends_when_it_is_told_to_and_leaves_no_server_behind(own_settings: Path) -> None:
    environment = {**os.environ, "SUTLER_PROVIDERS": "file"}
    process = subprocess.Popen([*COMMAND, "serve", "--port", "0"], cwd=ROOT, stderr=subprocess.PIPE, env=environment)
    try:
        assert process.stderr is not None
        assert any(b"polling file" in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
    assert not (own_settings / "postgres" / "postmaster.pid").exists()
