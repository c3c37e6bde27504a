"""The commands of docker-compose.yml, run as processes on a PostgreSQL that asks for its password."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import make_url

from tests.postgres import Server, a_folder, a_server
from tests.service.builders import a_problem
from tests.service.containers.reading import PASSWORD, PROGRAMS, ROLES, ROOT, SERVICES, STAGES, ran, seconds, words
from tests.service.running import Running, serving, settings, until

pytestmark = pytest.mark.slow

PAGE: Final = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Stack:
    """Containers as processes: those of the file, on a database of their own that asks for the password."""

    folder: Path
    url: str

    def environment(self, name: str) -> dict[str, str]:
        """Of the file; only where the database is differs."""
        given: Mapping[str, str] = SERVICES[name]["environment"]
        here = make_url(self.url)
        url = make_url(given["SUTLER_DATABASE_URL"]).set(
            host=None, port=None, database=here.database, query=here.query
        )
        return {**settings(self.folder), **given, "SUTLER_DATABASE_URL": url.render_as_string(hide_password=False)}

    def run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return ran(words(SERVICES[name], *arguments), self.environment(name), self.folder)

    def start(self, name: str, opened: ExitStack) -> Running:
        """What goes on until it is stopped."""
        _, *arguments = on_loopback(SERVICES[name]["command"])
        return opened.enter_context(serving(self.folder, self.environment(name), *arguments, waits=False))


def on_loopback(command: Sequence[str]) -> list[str]:
    """On a free port of this machine alone, where the API has to be told to ask for keys."""
    here = {"0.0.0.0": ["127.0.0.1", "--require-key"], "8400": ["0"]}
    return [other for word in command for other in here.get(word, [word])]


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    """With the file's user, who has to show the password."""
    with a_server() as server:
        rules = server.folder / "pg_hba.conf"
        rules.write_text(f"local all sutler scram-sha-256\n{rules.read_text(encoding='utf-8')}", encoding="utf-8")
        server.run(f"CREATE ROLE sutler LOGIN PASSWORD '{PASSWORD}'", "SELECT pg_reload_conf()")
        yield server


def a_stack(database: Server, name: str, folder: Path) -> Stack:
    database.run(f"CREATE DATABASE {name} OWNER sutler")
    return Stack(folder, database.url(name, user="sutler"))


@dataclass(frozen=True)
class Up:
    """What runs after `docker compose up`, and the first key."""

    stack: Stack
    key: str
    containers: Mapping[str, Running]

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return self.containers["api"].ask(method, path, headers={"Authorization": f"Bearer {self.key}"}, **options)

    def health(self, check: Sequence[str], port: int) -> int:
        """The exit status of a health check where the API listens on this port."""
        _, program, *rest = check
        command = [*PROGRAMS[program], *(word.replace("8400", str(port)) for word in rest)]
        return ran(command, {}, self.stack.folder).returncode


@pytest.fixture(scope="module")
def up(database: Server) -> Iterator[Up]:
    with a_folder() as folder, ExitStack() as opened:
        stack = a_stack(database, "up", folder)
        assert stack.run("upgrade").returncode == 0
        key = stack.run("sutler", "keys", "create", "admin", "--scope", "admin").stdout.strip()
        assert stack.run("key").returncode == 0
        yield Up(stack, key, {role: stack.start(role, opened) for role in ROLES})


def test_a_wrong_password_is_refused(database: Server) -> None:
    with a_folder() as folder:
        stack = a_stack(database, "refused", folder)
        environment = {**stack.environment("upgrade"), "PGPASSWORD": "wrong"}
        done = ran(words(SERVICES["upgrade"]), environment, folder)
        assert done.returncode == 4
        assert "password" in done.stderr


def test_who_starts_without_a_key_is_told_what_to_do(database: Server) -> None:
    with a_folder() as folder:
        stack = a_stack(database, "first", folder)
        assert stack.run("upgrade").returncode == 0
        refused = stack.run("key")
        assert refused.returncode != 0
        assert stack.run("api", *on_loopback(SERVICES["api"]["command"])).returncode == 2
        [remedy] = re.findall(r"docker compose run --rm (sutler .+)", refused.stderr)
        service, *arguments = remedy.split()
        assert stack.run(service, *arguments).returncode == 0
        assert stack.run("key").returncode == 0


def test_the_health_checks_of_file_and_image_see_the_api(up: Up) -> None:
    port = int(up.containers["api"].url.rpartition(":")[2])
    [of_the_image] = re.findall(r"HEALTHCHECK .* CMD (\[.+\])", STAGES[-1])
    until(lambda: up.containers["api"].get("/healthz").ok)
    for check in (SERVICES["api"]["healthcheck"]["test"], ["CMD", *json.loads(of_the_image)]):
        assert up.health(check, port) == 0
        assert up.health(check, 1) != 0


def test_a_plan_is_made_through_the_api_by_the_worker_on_the_market_that_the_scheduler_polled(up: Up) -> None:
    until(lambda: up.ask("GET", "/readyz").status_code == 200)
    problem = {name: part for name, part in a_problem().items() if name not in {"market", "throughput"}}
    models = [{**problem["models"][0], "model": "llama-3.1-8b"}]
    answer = up.ask("POST", "/v1/plans", json={**problem, "models": models})
    assert answer.status_code == 201
    assert answer.json()["status"] == "optimal"
    assert {rental["provider"] for rental in answer.json()["rentals"]} == {"file"}


def test_a_backup_brings_back_what_was_there(database: Server) -> None:
    with a_folder() as folder:
        stack = a_stack(database, "kept", folder)
        stack.run("upgrade")
        stack.run("sutler", "keys", "create", "before", "--scope", "read")
        [shown] = set(
            re.findall(r'docker compose run --rm .*--volume="\$PWD:/backups" (sutler .+) /backups/(.+)', PAGE)
        )
        service, file = shown
        assert stack.run(*service.split(), str(folder / file)).returncode == 0
        stack.run("sutler", "keys", "create", "after", "--scope", "read")
        assert stack.run("sutler", "restore", "--force", str(folder / file)).returncode == 0
        listed = json.loads(stack.run("sutler", "keys", "list", "--json").stdout)
        assert [key["name"] for key in listed] == ["before"]
        assert "the tables are at version" in stack.run("upgrade").stdout.lower()


def test_who_shows_no_key_gets_nothing(up: Up) -> None:
    assert up.containers["api"].get("/v1/plans").status_code == 401


@pytest.mark.parametrize("role", ROLES)
def test_a_container_that_is_stopped_ends_well_and_in_its_time(up: Up, role: str) -> None:
    with ExitStack() as opened:
        another = up.stack.start(role, opened)
        if role == "api":
            until(lambda: another.get("/healthz").ok)
        else:
            until(lambda: is_at_work(another, role))
        another.process.send_signal(signal.SIGTERM)
        assert another.process.wait(seconds(SERVICES[role]["stop_grace_period"])) == 0


def is_at_work(running: Running, role: str) -> bool:
    """The worker once it has its solver, the scheduler once it says what it polls."""
    return bool(running.titled("sutler solver")) if role == "worker" else "polling" in running.said()
