"""The client of docs/offline-running.md, run as it stands there against a script and servers that only play vLLM."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.offline.running_plans import REQUESTS, a_plan, a_stage
from tests.service.offline.running_scripts import Run, running

PAGE = Path(__file__).parents[3] / "docs" / "offline-running.md"
PROMPTS = [f"prompt {number}" for number in range(600)]


@pytest.mark.slow
def test_the_client_sends_again_what_a_stopped_server_had_and_ends_the_run(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"a": [(0,), (1,)]}, finished={"a": 100}, until=("a", 0.5)),
        a_stage(100, 200, {"a": [(2,)]}, finished={"a": REQUESTS}),
    )
    with running(tmp_path, plan) as run, _client(run, "a") as client:
        assert client.stdin is not None
        client.stdin.write("".join(f"{json.dumps(prompt)}\n" for prompt in PROMPTS))
        output, said = client.communicate(timeout=30)
        assert (client.returncode, said) == (0, "")
        answers = [json.loads(line) for line in output.splitlines()]
        assert [answer.partition(" by ")[0] for answer in answers] == PROMPTS
        ports = [answer.partition(" by ")[2] for answer in answers]
        assert len(set(ports)) == 2, "the first replica went on, the second stopped"
        assert run.end() == 0
        assert "a has finished" in run.text


def test_a_client_waits_until_its_model_has_an_endpoint(tmp_path: Path) -> None:
    plan = a_plan(
        a_stage(0, 100, {"b": [(0,)]}, finished={"b": REQUESTS}),
        a_stage(100, 200, {"it's a": [(0,)]}, finished={"it's a": REQUESTS}),
    )
    with running(tmp_path, plan) as run, _client(run, "it's a") as client:
        run.wait_for_step(1)
        assert client.stdin is not None
        client.stdin.write('"hello"\n')
        client.stdin.close()
        run.report_done("b")
        assert client.wait(timeout=20) == 0
        assert client.stdout is not None
        assert json.loads(client.stdout.read()).startswith("hello by ")
        assert run.end() == 0


def _client(run: Run, model: str) -> "subprocess.Popen[str]":
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    path = run.folder / "client.py"
    path.write_text(block, encoding="utf-8")
    run.wait_for((run.run_folder / "endpoints.json").exists)
    pipe = subprocess.PIPE
    command = [sys.executable, str(path), str(run.run_folder), model]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
