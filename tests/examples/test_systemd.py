"""The timer, the service and the cron line: what they run works, and systemd takes the units."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

from tests.examples.stand_in import StandIn
from tests.service.deployments.diff.fleets import a_fleet

EXAMPLES = Path(__file__).parents[2] / "examples"
UNITS = EXAMPLES / "systemd"
SCRIPT = UNITS / "sutler-plan.sh"
ANALYZE = shutil.which("systemd-analyze")


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's names have capitals
    parser.read(UNITS / name, encoding="utf-8")
    return parser


def run_script(folder: Path, service: StandIn, **environment: str) -> subprocess.CompletedProcess[str]:
    hook = folder / "hook"
    hook.write_text(f'#!/bin/sh\ncat > /dev/null\necho "$1 $2" >> {shlex.quote(str(folder / "calls"))}\n')
    hook.chmod(0o755)
    settings = folder / "plan.env"
    settings.write_text(
        f"SUTLER_URL={service.url}\nSUTLER_PLAN_DEPLOYMENT=chat\nSUTLER_PLAN_HOOK={hook}\n"
        f"SUTLER_PLAN_PYTHON={sys.executable}\nSUTLER_PLAN_SCRIPT={EXAMPLES / 'provision.py'}\n"
    )
    inherited = {name: value for name, value in environ.items() if not name.startswith("SUTLER_")}
    given = {"SUTLER_PLAN_SETTINGS": str(settings), "STATE_DIRECTORY": str(folder), **environment}
    return subprocess.run(
        [SCRIPT], env={**inherited, **given}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_run_of_the_service_carries_the_plan_out_once(tmp_path: Path, service: StandIn) -> None:
    """systemd hands the key over in a folder of credentials."""
    service.publish("chat", a_fleet())
    (tmp_path / "sutler-key").write_text(service.key)
    for _ in range(2):
        done = run_script(tmp_path, service, CREDENTIALS_DIRECTORY=str(tmp_path))
        assert done.returncode == 0, done.stderr
    actions = [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert actions == ["rent", "start", "route"]
    assert (tmp_path / "chat.json").exists()


def test_a_run_of_cron_reads_the_key_from_its_file(tmp_path: Path, service: StandIn) -> None:
    service.publish("chat", a_fleet())
    (tmp_path / "key").write_text(service.key)
    done = run_script(tmp_path, service, SUTLER_PLAN_KEY_FILE=str(tmp_path / "key"))
    assert done.returncode == 0, done.stderr


def test_a_run_without_settings_says_which_one_is_missing(tmp_path: Path) -> None:
    absent = str(tmp_path / "none.env")
    environment = {**environ, "SUTLER_PLAN_SETTINGS": absent}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert f"name the deployment in {absent}" in done.stderr


def test_a_failure_is_the_exit_status_that_systemd_sees(tmp_path: Path, service: StandIn) -> None:
    assert run_script(tmp_path, service).returncode == 2


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    assert ANALYZE is not None
    for name in ("sutler-plan.service", "sutler-plan.timer"):
        text = (UNITS / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("/opt/sutler/examples", str(EXAMPLES)), encoding="utf-8")
    units = [str(tmp_path / "sutler-plan.timer"), str(tmp_path / "sutler-plan.service")]
    done = subprocess.run([ANALYZE, "verify", *units], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sutler" in line]) == (0, [])


def test_the_service_ends_by_itself_and_the_timer_starts_it_again() -> None:
    service, timer = unit("sutler-plan.service"), unit("sutler-plan.timer")
    assert service["Service"]["Type"] == "oneshot"
    assert {"OnBootSec", "OnUnitInactiveSec"} <= timer["Timer"].keys()
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert "Install" not in service


def test_service_and_cron_run_the_same_script() -> None:
    command = unit("sutler-plan.service")["Service"]["ExecStart"]
    assert Path(command).relative_to("/opt/sutler/examples") == SCRIPT.relative_to(EXAMPLES)
    [line] = [line for line in (UNITS / "sutler-plan.cron").read_text().splitlines() if not line.startswith("#")]
    schedule = re.fullmatch(r"((?:[\d*/,-]+ ){5})(\S+) (\S+) .*", line)
    assert schedule is not None
    assert schedule[3] == command


def test_the_settings_file_can_be_read_by_a_shell() -> None:
    printed = 'set -a; . "$1"; echo "$SUTLER_URL $SUTLER_PLAN_DEPLOYMENT"'
    shown = subprocess.run(
        ["sh", "-euc", printed, "sh", UNITS / "sutler-plan.env"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == ["http://127.0.0.1:8400", "chat"]
