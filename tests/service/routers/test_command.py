"""`sutler router follow` as a process: a real service that changes its plan and goes away, and wrong calls."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import sutler
from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.examples import CHAT
from tests.service.export.plans import FOLDER
from tests.service.routers.running import SUTLER, engines
from tests.service.running import Running, serving, settings, until

pytestmark = pytest.mark.slow

MORE: Final = {**CHAT, "objective": {"kind": "min_cost", "headroom_fraction": 1.0}}


def weights(file: Path) -> dict[str, float]:
    """Of the questions, once there are any."""
    return dict(json.loads(file.read_text())["weights"]["chat"]["question"]) if file.exists() else {}


def test_revisions_reach_the_router_and_a_dead_replica_leaves_it_while_the_service_is_away(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = settings(tmp_path)
    file, addresses = tmp_path / "router.json", tmp_path / "addresses.json"
    names = [f"engine-{number}" for number in range(6)]
    with engines(names) as fleet:
        placed: dict[str, str] = {}

        def place(plan: sutler.PlanDocument) -> dict[str, str]:
            """Starts what the plan has and does not run yet; returns the engine of each replica."""
            for part in keyed(plan).replicas:
                placed.setdefault(part.key, names[len(placed)])
            addresses.write_text(json.dumps({key: fleet.address(name) for key, name in placed.items()}))
            return {part.replica.id: placed[part.key] for part in keyed(plan).replicas}

        with serving(tmp_path, environment, "--port", str(port)), sutler.Client(f"http://127.0.0.1:{port}") as client:
            client.apply("chat", CHAT, policy={"automatic": False})
            first = client.current_plan("chat", timeout_s=60)
            assert first is not None
            place(first)
            log = tmp_path / "follow.log"
            command = [*SUTLER, "router", "follow", "chat", "-f", "router", "--every-s", "0.3", "--checks", "2"]
            command += ["--addresses", str(addresses), "--out", str(file)]
            with log.open("wb") as stderr:
                process = subprocess.Popen(
                    command, env={**os.environ, "SUTLER_URL": f"http://127.0.0.1:{port}"}, stderr=stderr
                )
            try:
                until(lambda: weights(file) == dict(first.routing[0].fractions))
                client.apply("chat", MORE, policy={"automatic": False})
                second = client.current_plan("chat", after=first.revision, timeout_s=60)
                assert second is not None
                until(lambda: f"revision {second.revision} waits for" in log.read_text())
                assert json.loads(file.read_text())["revision"] == first.revision
                engine_of = place(second)
                until(lambda: weights(file) == dict(second.routing[0].fractions))
            finally:
                if process.poll() is not None:
                    raise AssertionError(log.read_text())
        try:
            until(lambda: "no plan from the service, the weights stay" in log.read_text())
            lost = next(iter(second.routing[0].fractions))
            fleet.kill(engine_of[lost])
            until(lambda: lost not in weights(file))
            assert sum(weights(file).values()) == pytest.approx(1.0)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    assert "Traceback" not in log.read_text()


def ended(*arguments: str, environment: Mapping[str, str] = os.environ) -> "subprocess.CompletedProcess[str]":
    command = [*SUTLER, "router", "follow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_wrong_calls_say_what_to_do(tmp_path: Path, service: Running) -> None:
    addresses, out = tmp_path / "addresses.json", ("--out", str(tmp_path / "out"))
    addresses.write_text("{}")
    plan = ("--plan", str(FOLDER / "single_gpu.json"))
    given = ("--addresses", str(addresses), *out)
    cases: tuple[tuple[tuple[str, ...], str], ...] = (
        (given, "error: give either NAME or --plan FILE"),
        (("chat", *plan, *given), "error: give either NAME or --plan FILE"),
        ((*plan, "--addresses", "gone.yaml", *out), "error: gone.yaml: cannot be read: no such file or directory"),
        ((*plan, "--addresses", str(addresses), "--out", str(tmp_path)), "is a folder: name a file in it"),
        ((*plan, *given, "--listen", "80; evil"), "error: --listen: '80; evil': must be a port, or an address"),
        (("--plan", "gone.json", *given), "error: gone.json: cannot be read: no such file or directory"),
    )
    for arguments, message in cases:
        found = ended(*arguments)
        assert (found.returncode, message in found.stderr) == (2, True), found.stderr
    stranger = {**os.environ, "SUTLER_URL": service.url}
    assert ended("chat", *given, environment=stranger).returncode == 2
    known = {**stranger, "SUTLER_KEY": service.key}
    found = ended("nobody", *given, environment=known)
    assert (found.returncode, "there is no deployment 'nobody'" in found.stderr) == (2, True), found.stderr
    assert service.key not in found.stderr


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    addresses = tmp_path / "addresses.yaml"
    addresses.write_text("{chat-0: '127.0.0.1:9'}")
    command = [*SUTLER, "router", "follow", "--plan", str(FOLDER / "single_gpu.json"), "-f", "router"]
    command += ["--addresses", str(addresses), "--out", str(tmp_path / "out")]
    process: subprocess.Popen[Any] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until((tmp_path / "out").exists)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert process.wait(20) == 130
    assert time.monotonic() - begun < 10
