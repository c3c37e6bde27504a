"""docs/running.md tells the truth: about settings, containers, times, and what systemd is given."""

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from sutler.service import settings
from sutler.service.cli.app import app
from sutler.service.plans.plan_requests import QUEUE_PATIENCE_S
from sutler.service.processes import family
from sutler.service.settings import ServiceSettings, StoreSettings
from sutler.service.translation.market_source import STORE_MAX_AGE_S
from sutler.service.workers.worker import HEARTBEATS
from tests.service.containers.reading import FILE, ROLES, ROOT, SERVICES

PAGE: Final = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
PAGES: Final = "\n".join(path.read_text("utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
COMMENTS: Final = "\n".join(line[1:].strip() for line in FILE.read_text("utf-8").splitlines() if line.startswith("#"))
EXAMPLES: Final = ROOT / "examples" / "service"
UNIT: Final = EXAMPLES / "sutler@.service"
ANALYZE: Final = shutil.which("systemd-analyze")
OF_A_CLOUD_ALONE: Final = re.compile(r"SUTLER_[A-Z]+_(API_KEY|CLIENT_ID|CLIENT_SECRET)")
OF_A_CLOUD: Final = re.compile(r"SUTLER_[A-Z]+_(BASE_URL|POLL_INTERVAL_S|REQUESTS_PER_DAY)")


class Asked(dict[str, str]):
    """An empty environment that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return default


def read_by_sutler() -> set[str]:
    asked = Asked()
    for read in (
        settings.settings_from,
        settings.store_settings,
        settings.market_settings,
        settings.service_settings,
    ):
        read(asked)
    return asked.names


def test_every_setting_is_in_the_docs() -> None:
    """What each cloud has is said once, for an example."""
    names = read_by_sutler()
    assert {"SUTLER_DATABASE_URL", "SUTLER_HOSTS", "SUTLER_VASTAI_API_KEY", "NO_COLOR"} <= names
    said_once = {re.sub(r"_[A-Z]+_", "_VASTAI_", name, count=1) for name in names if OF_A_CLOUD.fullmatch(name)}
    own = {name for name in names if not OF_A_CLOUD.fullmatch(name)}
    assert sorted(name for name in own | said_once if f"`{name}`" not in PAGES and f"`{name}=" not in PAGES) == []


def test_every_setting_of_the_service_is_on_the_page() -> None:
    asked = Asked()
    for read in (settings.settings_from, settings.store_settings, settings.service_settings):
        read(asked)
    assert set(table_of_settings()) == asked.names


OF_THE_MACHINE = {"solves_at_once", "most_solve_bytes"}


def test_what_is_not_set_is_what_the_page_says() -> None:
    said = {name: unset for name, unset in table_of_settings().items() if re.fullmatch(r"[\d.]+", unset)}
    usual: list[ServiceSettings | StoreSettings] = [ServiceSettings(), StoreSettings(data_dir=ROOT)]
    real = {
        f"SUTLER_{field.name.upper()}": float(getattr(found, field.name))
        for found in usual
        for field in fields(found)
        if isinstance(getattr(found, field.name), int | float) and field.name not in OF_THE_MACHINE
    }
    assert {name: float(unset) for name, unset in said.items()} == real


def table_of_settings() -> dict[str, str]:
    rows = re.findall(r"(?m)^\| `((?:SUTLER_|NO_|COLUMNS)[A-Z_]*)` \| ([^|]+) \|", PAGE)
    return {name: unset.strip() for name, unset in rows}


def test_the_page_names_every_container() -> None:
    rows = "\n".join(re.findall(r"(?m)^\| (`.+?) \|", PAGE.partition("## Docker compose")[2]))
    assert set(SERVICES) <= set(re.findall(r"`(\w+)`", rows))


def compose_commands() -> Iterator[list[str]]:
    for line in f"{PAGE}\n{COMMENTS}".splitlines():
        for command in re.findall(r"docker compose ((?:run|up|stop|exec|logs|build)[^`<>#;]*)", line):
            yield shlex.split(command.partition("   ")[0])


def test_the_commands_for_compose_name_containers_that_exist() -> None:
    commands = list(compose_commands())
    assert len(commands) > 8
    for verb, *words in commands:
        named = [word for word in words if not word.startswith("-")]
        if verb in {"run", "exec"}:
            named = named[:1]
        assert {name.partition("=")[0] for name in named} <= set(SERVICES), (verb, words)


def test_the_commands_of_sutler_in_containers_exist() -> None:
    commands = [words[2:] for verb, *words in compose_commands() if verb == "run" and words[:2] == ["--rm", "sutler"]]
    assert len(commands) >= 3
    for command in commands:
        if command != ["COMMAND"]:
            result = CliRunner().invoke(app, [*command, "--help"])
            assert result.exit_code == 0, command


def test_every_variable_of_the_compose_file_is_on_the_page() -> None:
    used = set(re.findall(r"\$\{(\w+)", FILE.read_text(encoding="utf-8")))
    own = {name for name in used if not OF_A_CLOUD_ALONE.fullmatch(name)}
    assert own == {"POSTGRES_PASSWORD", "SUTLER_SOLVES_AT_ONCE", "WORKER_MEMORY"}
    assert [name for name in own if name not in PAGE] == []


def test_the_proxy_waits_longer_than_any_answer_takes_and_lets_every_body_through() -> None:
    usual = ServiceSettings()
    [timeout_s] = re.findall(r"proxy_read_timeout (\d+)s;", PAGE)
    assert float(timeout_s) > max(usual.longest_solve_s + QUEUE_PATIENCE_S, usual.longest_wait_s)
    [most_mb] = re.findall(r"client_max_body_size (\d+)m;", PAGE)
    assert int(most_mb) * 2**20 >= usual.most_body_bytes


def test_the_times_on_the_page_are_those_of_the_service() -> None:
    text = " ".join(PAGE.split())
    assert f"within {family.GRACE_S:g} seconds" in text
    assert f"after {STORE_MAX_AGE_S:g} seconds there is nothing to plan on" in text
    assert f"Long polls last up to {settings.service_settings({}).longest_wait_s:g} seconds" in text
    assert HEARTBEATS == 4
    assert "four times within `SUTLER_WORKER_SILENT_S`" in text


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # systemd's names have capitals
    parser.read(UNIT, encoding="utf-8")
    return parser


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert ANALYZE is not None
    copy = tmp_path / "sutler@all.service"
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/sutler/bin/sutler", "/bin/true"), encoding="utf-8")
    done = subprocess.run([ANALYZE, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "sutler" in line]) == (0, [])


@pytest.mark.parametrize("role", ["all", *ROLES])
def test_the_command_of_the_unit_exists_for_every_role(role: str) -> None:
    program, *arguments = unit()["Service"]["ExecStart"].replace("%i", role).split()
    assert Path(program).name == "sutler"
    assert arguments[-1] == "$SERVE_ARGUMENTS"
    result = CliRunner().invoke(app, [*arguments[:-1], "--help"])
    assert result.exit_code == 0
    assert f"sutler@{role}" in UNIT.read_text(encoding="utf-8")


def test_systemd_waits_until_all_have_ended() -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) > family.GRACE_S
    assert service["KillMode"] == "mixed"


def test_the_settings_in_the_example_are_settings() -> None:
    lines = (EXAMPLES / "sutler.env").read_text(encoding="utf-8").splitlines()
    names = {name for line in lines if (name := line.lstrip("#").partition("=")[0]).isupper()}
    assert names - read_by_sutler() == {"PGPASSWORD", "SERVE_ARGUMENTS"}
