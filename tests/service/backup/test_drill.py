"""The drill of docs/recovery.md: a service is backed up at work, its database is lost, and it answers as before."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest

from sutler.service.db.store import open_store
from sutler.service.documents.examples import CHAT
from sutler.service.profiles.checks import Given
from sutler.service.profiles.repository import RunFilter
from sutler.service.profiles.service import ProfilesService
from sutler.service.settings import StoreSettings
from tests.postgres import Server, a_folder
from tests.service.offline.builders import an_application, an_asker
from tests.service.profiles.builders import a_table
from tests.service.running import PYTHON, Running, finished, made_key, serving, settings, until

pytestmark = pytest.mark.slow

NOT_STORED: Final = {"/healthz", "/readyz", "/metrics"}
NOW: Final = re.compile(r'"(age_s|last_used_at)":[^,}]*')  # what goes on with the clock, or with each question
MACHINE: Final = {
    **{"provider": "acme", "offer_id": "large", "gpu": "h100-sxm", "gpus": 1, "count": 1},
    **{"price_usd_per_hour": 2.2, "contract": "on_demand"},
}
PLANS: Final = 16  # so that some wait while a backup is made
Things = Mapping[str, Mapping[str, str]]
Answers = Mapping[tuple[str, str], tuple[str | None, str]]


def sutler(environment: Mapping[str, str], *words: str) -> str:
    """What a command says, which has to end well."""
    done = subprocess.run([*PYTHON, *words], env=dict(environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(service: Running, method: str, path: str, body: Any, **headers: str) -> Any:
    answer = service.ask(method, path, json=body, headers=headers)
    assert answer.status_code in {200, 201, 202}, answer.text
    return answer.json()


def fill(service: Running, name: str) -> Things:
    """One of everything, under the service's key; returns what stands for the placeholders of paths."""
    hook = made(service, "POST", "/v1/webhooks", {"url": "http://127.0.0.1:1024/", "events": ["plan.issued"]})
    delivery = made(service, "POST", f"/v1/webhooks/{hook['id']}/test", None)
    key = made(service, "POST", "/v1/keys", {"name": name, "scope": "read"})
    plan = made(service, "POST", "/v1/plans", CHAT)
    application = an_application(models=[an_asker()], edges=[], search={"time_limit_s": 2}, name=name)
    offline = made(service, "POST", "/v1/offline-plans", application)
    studies = {
        "/v1/what-ifs": {"problem": CHAT, "variants": [{"budget_usd_per_hour": 3}]},
        "/v1/comparisons": {"problem": CHAT, "only": ["homogeneous/*"]},
        "/v1/simulations": {"plan_id": plan["id"], "duration_s": 10},
    }
    asked = {path: service.post(path, body).headers["Location"].rpartition("/")[2] for path, body in studies.items()}
    made(service, "POST", "/v1/deployments", {"name": name, "problem": CHAT})
    at = f"/v1/deployments/{name}"
    until(lambda: service.get(f"{at}/plan").ok)
    made(service, "PUT", f"{at}/holdings", {"holdings": [MACHINE]})
    feed = {"model": CHAT["models"][0]["name"], "kind": "vllm", "urls": ["http://127.0.0.1:1024"], "every_s": 5}
    made(service, "PUT", f"{at}/feeds", {"feeds": [feed]})
    return {
        **{path: {"plan_id": plan_id} for path, plan_id in asked.items()},
        "/v1/plans": {"plan_id": plan["id"], "format": "vllm"},
        "/v1/offline-plans": {"plan_id": offline["id"]},
        "/v1/deployments": {"name": name, "revision": "1"},
        "/v1/calibrations": {"name": name},
        "/v1/webhooks": {"webhook_id": hook["id"]},
        "/v1/deliveries": {"delivery_id": delivery["id"]},
        "/v1/keys": {"key_id": key["id"]},
        "/v1/providers": {"name": "file"},
    }


def calibrate(database: str, folder: Path, project: str, name: str) -> None:
    engine = open_store(StoreSettings(data_dir=folder, database_url=database))
    profiles = ProfilesService(engine).of(project)
    profiles.import_file(f"{name}.csv", a_table(0.7).encode(), Given())
    profiles.keep(profiles.calibrate(name, RunFilter()))
    engine.dispose()


def reads(service: Running, things: Things, at: str) -> Iterator[str]:
    """Every path that is read from a store; what is about the time at which it is asked for is asked about `at`."""
    window = f"since=2026-11-01T00:00:00Z&until={at}"
    about = {"/offers": f"?as_of={at}", "/offers/history": f"?gpu=h100-sxm&{window}", "/costs": f"?{window}"}
    for template, methods in service.get("/openapi.json").json()["paths"].items():
        if "get" in methods and template not in NOT_STORED:
            group = max((group for group in things if template.startswith(group)), key=len, default="")
            path = template.format(**things.get(group, {}))
            yield path + next((question for end, question in about.items() if path.endswith(end)), "")


def answers(service: Running, keys: Mapping[str, tuple[str, Things]], at: str) -> Answers:
    """What each project's key is answered to every question."""
    found = {}
    for project, (key, things) in keys.items():
        service.with_key(key)
        for path in reads(service, things, at):
            answer = service.get(path)
            assert answer.ok, (path, answer.text)
            found[project, path] = (answer.headers.get("ETag"), NOW.sub("", answer.text))
    return found


def test_a_service_that_has_lost_its_database_answers_as_before(postgres: Server) -> None:
    postgres.create("drill")
    with a_folder() as folder:
        others = {"SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8", "SUTLER_FILE_PROJECT": "*"}
        database = postgres.url("drill")
        environment = settings(folder, SUTLER_DATABASE_URL=database, **others)
        sutler(environment, "projects", "create", "theirs")
        admins = {name: made_key(environment, "admin", "--project", name) for name in ("default", "theirs")}
        at_work, at_rest = folder / "at-work.backup", folder / "at-rest.backup"
        with serving(folder, environment, "--require-key") as service:
            until(lambda: service.get("/readyz").ok)
            keys = {}
            for project, key in admins.items():
                calibrate(database, folder, project, f"of-{project}")
                keys[project] = (key, fill(service.with_key(key), f"of-{project}"))
            wish = {"Prefer": "respond-async"}
            waiting = [
                made(service, "POST", "/v1/plans", {**CHAT, "budget_usd_per_hour": 20 + i}, **wish)
                for i in range(PLANS)
            ]
            sutler(environment, "backup", str(at_work))
            refused = subprocess.run(
                [*PYTHON, "restore", str(at_work)], env=environment, capture_output=True, text=True, check=False
            )
            assert (refused.returncode, "sutler guard (1), sutler notices (1)" in refused.stderr) == (2, True)
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        with ZipFile(at_work) as archive:
            assert archive.read("sutler-backup/queue.procrastinate_jobs.copy").count(b"solve_plan") > 0
        with serving(folder, environment, "--require-key", "--role", "api") as service:
            before = answers(service, keys, at)
            told = json.loads(sutler(environment, "backup", str(at_rest), "--json"))
        assert told["tables"]["public.plan"]["rows"] > PLANS
        assert len(before) > 80

        postgres.run("DROP DATABASE drill WITH (FORCE)", "CREATE DATABASE drill")
        sutler(environment, "restore", str(at_rest))
        with serving(folder, environment, "--require-key", "--role", "api") as service:
            after = answers(service, keys, at)
        assert {path: (before[path], after[path]) for path in before if before[path] != after[path]} == {}

        with serving(folder, environment, "--require-key") as service:
            sutler(environment, "restore", str(at_work), "--force")
            service.with_key(admins["theirs"])
            until(lambda: service.get("/v1/plans").ok)
            made_at_last = [finished(service, f"/v1/plans/{plan['id']}")["status"] for plan in waiting]
        assert {*made_at_last} == {"optimal"}
