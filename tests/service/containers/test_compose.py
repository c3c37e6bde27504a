"""What docker-compose.yml and the Dockerfile say: who may do what, what waits for what, what is pinned."""

import re
import sys
import tomllib
from fnmatch import fnmatch
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from sutler.adapters.registry import PROVIDERS
from sutler.service.cli.app import app
from sutler.service.processes import family
from sutler.service.processes.api import GRACE_S
from sutler.service.settings import WITHHELD, variable
from tests.service.containers.reading import (
    COMPOSE,
    FILE,
    PASSWORD,
    ROLES,
    ROOT,
    SERVICES,
    STAGES,
    compose,
    ran,
    seconds,
)
from tests.test_architecture import OPTIONAL_IMPORTS, PACKAGE, found

ONCE: Final = ("upgrade", "key")
OURS: Final = sorted(set(SERVICES) - {"database"})


def test_the_schema_of_compose_accepts_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = ran(command, {}, tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [*ROLES, "upgrade"])
def test_the_command_of_a_container_exists(name: str) -> None:
    result = CliRunner().invoke(app, [*SERVICES[name]["command"], "--help"])
    assert result.exit_code == 0, result.output


def test_the_keys_of_clouds_reach_the_scheduler_and_commands_alone() -> None:
    keys = {variable(name, secret) for name, cloud in PROVIDERS.items() for secret in cloud.secrets}
    services = compose(POSTGRES_PASSWORD=PASSWORD, **dict.fromkeys(keys, "secret"))["services"]
    for name in (*ONCE, "api", "worker"):
        given = services[name]["environment"]
        assert {key for key in given if given[key] == WITHHELD} == keys
    for name in ("scheduler", "sutler"):
        assert not keys & set(services[name]["environment"])  # they come from .env


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_a_container_that_is_started_again(role: str) -> None:
    assert ["serve", "--role", role] == SERVICES[role]["command"][:3]
    assert SERVICES[role]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", ONCE)
def test_what_is_to_end_is_not_started_again(name: str) -> None:
    assert "restart" not in SERVICES[name]


def test_each_waits_for_what_it_needs() -> None:
    waits = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    upgraded = {"upgrade": "service_completed_successfully"}
    assert waits == {
        "database": {},
        "upgrade": {"database": "service_healthy"},
        "key": upgraded,
        "api": {"key": "service_completed_successfully"},
        "worker": upgraded,
        "scheduler": upgraded,
        "sutler": upgraded,
    }


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_may_do_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service.get("user", "") not in {"root", "0", "0:0"}


def test_only_the_api_can_be_reached_and_only_from_this_machine() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8400:8400"]}
    assert SERVICES["database"]["networks"] == ["store"]
    assert COMPOSE["networks"]["store"] == {"internal": True}


def test_workers_can_be_many() -> None:
    assert {"container_name", "ports", "hostname"}.isdisjoint(SERVICES["worker"])


def test_the_password_comes_from_outside_and_must_be_given() -> None:
    with pytest.raises(KeyError, match="POSTGRES_PASSWORD"):
        compose()
    assert SERVICES["database"]["environment"]["POSTGRES_PASSWORD"] == PASSWORD
    for name in OURS:
        assert SERVICES[name]["environment"]["PGPASSWORD"] == PASSWORD
        assert PASSWORD not in str({key: value for key, value in SERVICES[name].items() if key != "environment"})


def test_containers_are_given_longer_to_end_than_the_service_gives_itself() -> None:
    assert seconds(SERVICES["api"]["stop_grace_period"]) > GRACE_S
    for role in ("worker", "scheduler"):
        assert seconds(SERVICES[role]["stop_grace_period"]) > family.GRACE_S


def test_only_the_api_is_asked_how_it_is() -> None:
    """The image's own check asks the API: in a container that runs something else it would fail for ever."""
    asked = {name for name, service in SERVICES.items() if service["healthcheck"] != {"disable": True}}
    assert asked == {"api", "database"}


def images() -> dict[str, str]:
    named = {name: service["image"] for name, service in SERVICES.items() if "build" not in service}
    built = {stage.split()[0] for stage in STAGES} - {stage.split()[2] for stage in STAGES if " AS " in stage}
    return {**named, **{image: image for image in built}}


@pytest.mark.parametrize("image", images().values())
def test_images_are_pinned_to_a_version(image: str) -> None:
    assert re.fullmatch(r"(python:3\.\d+\.\d+-slim|postgres:\d+\.\d+)-[a-z]+", image)


def test_hadolint_finds_nothing(tmp_path: Path) -> None:
    done = ran([str(Path(sys.executable).with_name("hadolint")), str(ROOT / "Dockerfile")], {}, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_a_user_without_rights() -> None:
    [user] = re.findall(r"(?m)^USER (.+)$", STAGES[-1])
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert f"--uid {user.partition(':')[0]} " in STAGES[-1]


def test_nothing_is_installed_whose_hash_was_not_checked() -> None:
    uses = [command for stage in STAGES for command in re.findall(r"\bpip [^&\n]+", stage)]
    installs = [command for command in uses if re.search(r" (download|install|wheel) ", command)]
    assert len(installs) == 4
    assert "--require-hashes" in installs[0]
    assert all("--no-index" in install for install in installs[1:])


def copied() -> list[str]:
    lines = [
        line for stage in STAGES for line in stage.splitlines() if line.startswith("COPY ") and "--from=" not in line
    ]
    return [word for line in lines for word in line.split()[1:-1]]


def test_the_image_holds_every_package_and_nothing_that_is_ignored() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks", "examples"}
    assert packages == {"sutler", "solver", "adapters", "service", "migrations"}
    assert packages <= set(copied())
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {line.removeprefix("!") for line in allowed if line.startswith("!")} == set(copied())
    assert allowed[0] == "*"
    assert any(fnmatch("service/__pycache__", pattern) for pattern in allowed[1:])


def in_the_image() -> set[str]:
    """The distributions that pyproject.toml asks for, with all that those need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [Requirement(line) for line in project["dependencies"]]
    seen: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        extras = requirement.extras or {""}
        needed = [Requirement(line) for line in requires(requirement.name) or []]
        wanted += [
            one for one in needed if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
        ]
    return {canonicalize_name(Requirement(line).name) for line in seen}


@pytest.mark.slow
def test_every_library_that_is_imported_is_in_the_image() -> None:
    """The tests' own environment also has the tools of development."""
    imported = {module.partition(".")[0] for modules in found()[1].values() for module in modules}
    foreign = imported - {*sys.stdlib_module_names, PACKAGE, *OPTIONAL_IMPORTS}
    providers = packages_distributions()
    there = in_the_image()
    assert {"fastapi", "ortools", "psycopg"} <= foreign
    assert "pytest" not in there
    assert [name for name in foreign if there.isdisjoint(canonicalize_name(one) for one in providers[name])] == []
