"""`sutler dev fake-cloud` as a process: what it prints, whom it answers, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from sutler.adapters.polling import poll
from sutler.adapters.registry import PROVIDERS
from sutler.service.settings import market_settings

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "from sutler.service.cli.main import run; run()", "dev", "fake-cloud"]
ENDED_S = 20


@contextmanager
def running(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """The process and what it printed until it began to serve."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if "Ctrl-C" in line:
                break
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def ended(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=ENDED_S
    )


def settings(lines: list[str]) -> dict[str, str]:
    exports = (line.removeprefix("export ") for line in lines if line.startswith("export "))
    return dict(export.split("=", 1) for export in exports)


def test_the_lines_it_prints_are_all_that_a_poll_needs() -> None:
    with running("--seed", "5") as (_, lines):
        configs = market_settings(settings(lines)).configs
        outcomes = {
            name: poll(PROVIDERS[name], configs[name]).outcome
            for name in PROVIDERS
            if f"SUTLER_{name.upper()}_BASE_URL" in settings(lines) and name != "vastai"
        }
    assert len(outcomes) > 3
    assert set(outcomes.values()) == {"ok"}
    assert "SUTLER_VASTAI_BASE_URL" in settings(lines)
    assert any("sutler market poll" in line for line in lines)


def test_ctrl_c_is_how_it_ends() -> None:
    with running() as (process, _):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=ENDED_S)
    assert (process.returncode, err) == (0, "stopped\n")


def test_failures_keys_and_log_are_as_asked() -> None:
    with running("--fail", "lium=http_503:1", "--require-key", "--log") as (process, lines):
        base_url = settings(lines)["SUTLER_LIUM_BASE_URL"]
        nodes, types = f"{base_url}/api/public/v1/nodes", f"{base_url}/api/v1/instance-types?api_key=hidden"
        assert [requests.get(url, timeout=10).status_code for url in (nodes, nodes, types)] == [503, 200, 401]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=ENDED_S)
    assert err.splitlines() == [
        "GET /api/public/v1/nodes 503",
        "GET /api/public/v1/nodes 200",
        "GET /api/v1/instance-types 401",
        "stopped",
    ]


def test_a_folder_is_played_back(tmp_path: Path) -> None:
    entry = {"provider": "lium", "method": "GET", "path": "/api/public/v1/nodes", "status": 200, "headers": {}}
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(f'"{name}"', encoding="utf-8")
    manifest = [{**entry, "file": "a.json"}, {**entry, "file": "b.json"}]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with running("--payloads", str(tmp_path), "--file", "b.json") as (_, lines):
        assert settings(lines).keys() == {"SUTLER_LIUM_BASE_URL"}
        answer = requests.get(settings(lines)["SUTLER_LIUM_BASE_URL"] + "/api/public/v1/nodes", timeout=10)
    assert answer.text == '"b.json"'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail", "vastai"], "must be PROVIDER=KIND"),
        (["--fail", "vastai=fire"], "kind: 'fire' must be one of http_429_plain"),
        (["--fail", "moon=hang"], "provider: 'moon' must be one of"),
        (["--speed", "0"], "speed: 0.0 must be above 0"),
        (["--machines", "3"], "machines: 3 must be from 50 to 20000"),
        (["--payloads", "nowhere"], "cannot be read (no such file"),
        (["--file", "a.json"], "start with --payloads DIR"),
    ],
)
def test_what_cannot_be_is_bad_input(arguments: list[str], message: str) -> None:
    result = ended(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_a_port_in_use_is_bad_input_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = ended("--port", str(port))
    assert result.returncode == 2
    assert f"--port: {port} cannot be used" in result.stderr
    assert "or 0 for any that is free" in result.stderr
