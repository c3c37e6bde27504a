"""docker-compose.yml and the Dockerfile, as far as they can be checked without Docker: names, commands, files."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from service.cli.app import app

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]


@pytest.mark.parametrize("name", ["upgrade", "sutler"])
def test_the_commands_of_the_containers_exist(name: str) -> None:
    result = CliRunner().invoke(app, [*SERVICES[name]["command"], "--help"])
    assert result.exit_code == 0


def test_services_wait_for_services_that_exist() -> None:
    waited_for = {other for service in SERVICES.values() for other in service.get("depends_on", {})}
    assert waited_for == {"database", "upgrade"}
    assert waited_for <= set(SERVICES)


def test_the_tables_are_made_before_polling_starts() -> None:
    assert SERVICES["sutler"]["depends_on"]["upgrade"]["condition"] == "service_completed_successfully"
    assert SERVICES["upgrade"]["depends_on"]["database"]["condition"] == "service_healthy"


def test_no_password_is_written_down() -> None:
    given = "${POSTGRES_PASSWORD:?"
    assert SERVICES["database"]["environment"]["POSTGRES_PASSWORD"].startswith(given)
    for name in ("upgrade", "sutler"):
        assert SERVICES[name]["environment"]["SUTLER_DATABASE_URL"].startswith(f"postgresql://sutler:{given}")


def test_the_image_copies_what_exists_and_every_package() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    sources = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert {"solver", "adapters", "service", "migrations", "requirements.lock"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []
