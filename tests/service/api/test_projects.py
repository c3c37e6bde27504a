"""Who has a key of a project sees and changes nothing of another: every operation, list and page is tried.

A project has one of everything; all that can carry a name is called MARK, which no answer to a stranger may hold.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
import requests
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from sutler.service.cli.app import app
from sutler.service.db.store import open_store
from sutler.service.documents.examples import CHAT
from sutler.service.profiles.checks import Given
from sutler.service.profiles.repository import RunFilter
from sutler.service.profiles.service import ProfilesService
from sutler.service.settings import StoreSettings
from sutler.service.web.caller import SCOPES, Scope
from tests.postgres import Server
from tests.service.offline.builders import an_application, an_asker
from tests.service.profiles.builders import a_table
from tests.service.running import Running, finished, until

MARK: Final = "known-to-us"
OURS: Final = "ours"
ELSEWHERE: Final = "elsewhere"
PROJECTS: Final = (OURS, ELSEWHERE, "default")
PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
# What is the same for all: the market, the catalogue, the service itself.
COMMON: Final = (
    *("/healthz", "/readyz", "/metrics", "/v1/catalog", "/v1/offers", "/v1/providers", "/v1/estimates"),
    *("/v1/costs",),  # an empty one is no list
)
PROBLEM: Final = {**CHAT, "models": [{**CHAT["models"][0], "name": MARK}]}
MOVING: Final = re.compile(r'"(last_used_at|at|until|since)":("[^"]*"|[^,}]*)')
GROWING: Final = re.compile("/costs|/deliver|/decisions|/traffic")
MACHINE: Final = {
    **{"provider": "vastai", "offer_id": MARK, "gpu": "h100-sxm", "gpus": 1, "count": 1},
    **{"price_usd_per_hour": 2.0, "contract": "on_demand"},
}


@dataclass(frozen=True)
class Key:
    """Asks the service with a key of its own."""

    service: Running
    text: str

    @property
    def id(self) -> str:
        return self.text.split("_")[1]

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        return self.service.ask(method, path, headers={"Authorization": f"Bearer {self.text}"}, **options)

    def made(self, path: str, body: Any = None) -> Any:
        answer = self.ask("POST", path, **({} if body is None else {"json": body}))
        assert answer.status_code in {201, 202}, answer.text
        return answer.json()


@dataclass(frozen=True)
class Things:
    """What a project has: for each group of paths, what stands for their placeholders."""

    paths: Mapping[str, Mapping[str, str]]

    def at(self, template: str) -> str | None:
        """The path of what the project has; None where it is nobody's."""
        group = max((group for group in self.paths if template.startswith(group)), key=len, default="")
        if not PLACEHOLDER.search(template) or template.startswith(COMMON):
            return None
        return PLACEHOLDER.sub(lambda found: self.paths[group][found[1]], template)

    @property
    def ids(self) -> set[str]:
        return {value for values in self.paths.values() for value in values.values() if len(value) >= 12} - {MARK}


def sutler(database: str, *words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"SUTLER_DATABASE_URL": database}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


@pytest.fixture(scope="module")
def database(service: Running, postgres: Server) -> str:
    until(lambda: service.get("/readyz").ok)
    return postgres.url("service")


@pytest.fixture(scope="module")
def store(database: str, postgres: Server) -> Iterator[Engine]:
    engine = open_store(StoreSettings(data_dir=postgres.data_dir, database_url=database))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def keys(service: Running, database: str) -> Mapping[tuple[str, Scope], Key]:
    """Of each scope, of two projects and of the one that there always is."""
    for project in (OURS, ELSEWHERE):
        sutler(database, "projects", "create", project)
    return {
        (project, scope): Key(
            service, sutler(database, "keys", "create", f"a {scope}", "--scope", scope, "--project", project)
        )
        for project in PROJECTS
        for scope in SCOPES
    }


@pytest.fixture(scope="module")
def owner(keys: Mapping[tuple[str, Scope], Key]) -> Key:
    return keys[OURS, "admin"]


@pytest.fixture(scope="module", params=[ELSEWHERE, "default"])
def any_stranger(request: pytest.FixtureRequest, keys: Mapping[tuple[str, Scope], Key]) -> Key:
    return keys[request.param, "admin"]


@pytest.fixture(scope="module")
def stranger(keys: Mapping[tuple[str, Scope], Key]) -> Key:
    return keys[ELSEWHERE, "admin"]


@pytest.fixture(scope="module")
def ours(owner: Key, store: Engine) -> Iterator[Things]:
    """One of everything, planned and made."""
    service = owner.service
    profiles = ProfilesService(store).of(OURS)
    profiles.import_file(f"{MARK}.csv", a_table(0.7).encode(), Given())
    profiles.keep(profiles.calibrate(MARK, RunFilter()))
    webhook = owner.made(
        "/v1/webhooks", {"url": "http://127.0.0.1:1024/hook", "events": ["plan.issued"], "description": MARK}
    )
    delivery = owner.made(f"/v1/webhooks/{webhook['id']}/test")
    key = owner.made("/v1/keys", {"name": MARK, "scope": "read"})
    plan = owner.made("/v1/plans", PROBLEM)
    application = an_application(models=[an_asker()], edges=[], search={"time_limit_s": 2}, name=MARK)
    offline = owner.made("/v1/offline-plans", application)
    studies = {
        "/v1/what-ifs": {"problem": PROBLEM, "variants": [{"budget_usd_per_hour": 3}]},
        "/v1/comparisons": {"problem": PROBLEM, "only": ["homogeneous/*"]},
        "/v1/simulations": {"plan_id": plan["id"], "duration_s": 10},
    }
    asked = {path: owner.ask("POST", path, json=body) for path, body in studies.items()}
    assert {answer.status_code for answer in asked.values()} == {201}
    owner.made("/v1/deployments", {"name": MARK, "problem": PROBLEM})
    until(lambda: owner.ask("GET", f"/v1/deployments/{MARK}/plan").status_code == 200)
    holdings = {"holdings": [MACHINE]}
    assert owner.ask("PUT", f"/v1/deployments/{MARK}/holdings", json=holdings).status_code == 200
    finished(service, f"/v1/plans/{plan['id']}")
    found = {path: {"plan_id": answer.headers["Location"].rpartition("/")[2]} for path, answer in asked.items()}
    yield Things(
        {
            **found,
            "/v1/plans": {"plan_id": plan["id"], "format": "vllm"},
            "/v1/offline-plans": {"plan_id": offline["id"]},
            "/v1/deployments": {"name": MARK, "revision": "1"},
            "/v1/calibrations": {"name": MARK},
            "/v1/webhooks": {"webhook_id": webhook["id"]},
            "/v1/deliveries": {"delivery_id": delivery["id"]},
            "/v1/keys": {"key_id": key["id"]},
        }
    )
    assert owner.ask("DELETE", f"/v1/deployments/{MARK}").status_code == 204


@pytest.fixture(scope="module")
def operations(service: Running) -> list[tuple[str, str, Any]]:
    """Method, path as a template, and a body that fits."""
    paths: dict[str, Any] = service.get("/openapi.json").json()["paths"]
    found = []
    for path, methods in paths.items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            examples = [example["value"] for example in content.get("examples", {}).values()]
            found.append((method.upper(), path, next(iter(examples), None)))
    return found


def asked(key: Key, method: str, path: str, body: Any) -> requests.Response:
    return key.ask(method, path, **({} if body is None else {"json": body}))


def state_of(owner: Key, ours: Things, operations: list[tuple[str, str, Any]]) -> dict[str, Any]:
    """All that the owner can read of what is theirs, but for times and what looks and deliveries go on to find."""
    paths = {path for method, template, _ in operations if method == "GET" and (path := ours.at(template))}
    answers = {path: owner.ask("GET", path) for path in sorted(paths)}
    assert {path: answer.status_code for path, answer in answers.items() if not answer.ok} == {}
    told = {path: MOVING.sub("", answer.text) for path, answer in answers.items() if not GROWING.search(path)}
    return {path: text.partition('"watch":')[0] for path, text in told.items()}


def test_no_operation_of_a_stranger_finds_what_a_project_has(
    owner: Key, any_stranger: Key, ours: Things, operations: list[tuple[str, str, Any]]
) -> None:
    """Each is there for its owner, and stays as it was."""
    before = state_of(owner, ours, operations)
    walked = set()
    for method, template, body in operations:
        path = ours.at(template)
        if path is None or (method, template) == ("PUT", "/v1/deployments/{name}"):
            continue  # that makes one of the stranger's own
        answer = asked(any_stranger, method, path, body)
        assert answer.status_code == 404, (method, template, answer.status_code, answer.text)
        assert MARK not in answer.text.replace(path, "").replace(f"'{MARK}'", ""), answer.text
        walked.add(template.split("/")[2])
    assert walked >= {group.split("/")[2] for group in ours.paths}
    assert state_of(owner, ours, operations) == before
    changes = owner.ask("GET", "/v1/audit", params={"actor": f"key/{any_stranger.id}"}).json()
    assert changes["items"] == []


def test_no_list_metric_or_page_of_a_stranger_tells_of_it(
    owner: Key, any_stranger: Key, ours: Things, operations: list[tuple[str, str, Any]]
) -> None:
    lists = [path for method, path, _ in operations if method == "GET" and not PLACEHOLDER.search(path)]
    told = {path: any_stranger.ask("GET", path, params=_most(path)).text for path in lists}
    for path, content in told.items():
        assert MARK not in content, path
        assert not [one for one in ours.ids if one in content], path
    shown = " ".join(owner.ask("GET", path, params=_most(path)).text for path in lists)
    assert MARK in shown
    assert ours.ids - {one for one in ours.ids if one in shown} == set()
    assert f'sutler_plan_usd_per_hour{{deployment="{MARK}"}}' in owner.ask("GET", "/metrics").text
    browser = requests.Session()
    url, form = any_stranger.service.url, {"Sec-Fetch-Site": "same-origin"}
    assert browser.post(f"{url}/ui/sign-in", {"key": any_stranger.text}, headers=form).url.endswith("/ui")
    for page in ("/ui", "/ui/costs", "/ui/what-if", "/ui/simulation", "/ui/report", "/ui/market"):
        answer = browser.get(f"{url}{page}")
        assert (answer.status_code, MARK in answer.text) == (200, False), page
    assert browser.get(f"{url}/ui/deployments/{MARK}").status_code == 404


def _most(path: str) -> dict[str, int]:
    return {"limit": 200} if path.startswith("/v1/") and path not in {"/v1/costs", "/v1/offers/history"} else {}


def test_no_question_of_a_stranger_reaches_it_by_name(stranger: Key, ours: Things) -> None:
    plan_id = ours.paths["/v1/plans"]["plan_id"]
    for path, rest in (
        ("/v1/what-ifs", {"variants": [{"budget_usd_per_hour": 3}]}),
        ("/v1/comparisons", {}),
        ("/v1/simulations", {}),
    ):
        for named in ({"deployment": MARK}, {"plan_id": plan_id}):
            answer = stranger.ask("POST", path, json={**rest, **named})
            assert answer.status_code == 404, (path, named, answer.text)
    estimate = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "input_tokens": 512,
        "output_tokens": 128,
        "precision": "bf16",
    }
    answer = stranger.ask("POST", "/v1/estimates", json={**estimate, "calibration": MARK})
    assert answer.status_code == 404, answer.text
    for name in (MARK, "nothing"):
        problem = {**CHAT, "throughput": {"calibration": name}}
        answer = stranger.ask("POST", "/v1/plans", json=problem)
        assert answer.status_code == 422
        assert MARK not in answer.text.replace(f"'{name}'", "").replace(f" {name}:", "").replace(f'"{name}"', "")


def test_a_stranger_s_cursor_leads_to_nothing_of_it(owner: Key, stranger: Key, ours: Things) -> None:
    owner.made("/v1/plans", CHAT)
    cursor = owner.ask("GET", "/v1/plans", params={"limit": 1}).json()["next"]
    assert cursor is not None
    answer = stranger.ask("GET", "/v1/plans", params={"cursor": cursor})
    assert not ours.ids & {one["id"] for one in answer.json()["items"]}


def test_two_projects_have_a_deployment_of_the_same_name_each(
    owner: Key, stranger: Key, ours: Things, store: Engine
) -> None:
    """What is made of it, by whoever works for it, belongs where it does; the webhooks of the other hear nothing."""
    before = owner.ask("GET", f"/v1/deployments/{MARK}")
    hook = {"url": "http://127.0.0.1:1024/theirs", "events": ["plan.issued", "deployment.attention"]}
    theirs = stranger.made("/v1/webhooks", hook)
    made = stranger.ask("PUT", f"/v1/deployments/{MARK}", json={"problem": CHAT})
    assert made.status_code == 201, made.text
    current = f"/v1/deployments/{MARK}/plan"
    plan = until(lambda: answer.json() if (answer := stranger.ask("GET", current)).ok else None)
    assert plan["id"] != owner.ask("GET", current).json()["id"]
    stranger.made(f"/v1/deployments/{MARK}/replan")
    until(lambda: stranger.ask("GET", current).json()["revision"] > plan["revision"])
    machine = {**MACHINE, "offer_id": "another"}
    assert stranger.ask("PUT", f"/v1/deployments/{MARK}/holdings", json={"holdings": [machine]}).ok
    until(lambda: (stranger.ask("GET", f"/v1/deployments/{MARK}").json()["watch"] or {}).get("looked_at"))
    told = stranger.ask("GET", f"/v1/webhooks/{theirs['id']}/deliveries").json()["items"]
    assert {one["event"] for one in told} >= {"plan.issued"}
    ours_told = owner.ask("GET", "/v1/deliveries", params={"limit": 200}).json()["items"]
    bodies = [owner.ask("GET", f"/v1/deliveries/{one['id']}").json()["body"] for one in ours_told]
    assert not [body for body in bodies if plan["id"] in body]
    owned = "SELECT count(*) FROM {} o JOIN deployment d ON d.id = o.deployment_id WHERE o.project <> d.project"
    with store.connect() as connection:
        assert [connection.scalar(text(owned.format(table))) for table in ("plan", "cost")] == [0, 0]
        changes = text("SELECT DISTINCT project FROM audit WHERE actor = :actor")
        assert [*connection.scalars(changes, {"actor": f"key/{stranger.id}"})] == [ELSEWHERE]
    assert stranger.ask("DELETE", f"/v1/deployments/{MARK}").status_code == 204
    assert owner.ask("GET", f"/v1/deployments/{MARK}").headers["ETag"] == before.headers["ETag"]


# What each scope may do beside what those before it may: the privilege table of docs/keys.md.
NEEDS_ADMIN: Final = ("/v1/webhooks", "/v1/deliveries", "/v1/audit", "/v1/keys")


def needed(method: str, template: str) -> Scope | None:
    if template in {"/healthz", "/readyz"}:
        return None
    if template.startswith(NEEDS_ADMIN):
        return "admin"
    return "read" if method == "GET" or template == "/v1/estimates" else "plan"


@pytest.mark.slow
def test_each_scope_of_each_project_may_do_what_the_table_says(
    keys: Mapping[tuple[str, Scope], Key], ours: Things, operations: list[tuple[str, str, Any]]
) -> None:
    """Cell by cell: operation by project and scope. Nothing of the owner's is changed: there, nothing is named."""
    for method, template, _ in operations:
        scope_needed = needed(method, template)
        for (project, scope), key in keys.items():
            path = ours.at(template) or PLACEHOLDER.sub("nobody", template)
            is_harmless = method == "GET" or project != OURS
            if not is_harmless:
                path = PLACEHOLDER.sub(_nobody, template)
            params = {"gpu": "h100-sxm"} if template == "/v1/offers/history" else None
            status = key.ask(method, path, params=params).status_code
            cell = (method, template, project, scope, status)
            may = scope_needed is None or SCOPES.index(scope) >= SCOPES.index(scope_needed)
            assert (status == 403) == (not may), cell
            if may and project != OURS and ours.at(template) is not None:
                assert status in ({404, 415} if method in {"POST", "PUT"} else {404}), cell
            if may and project == OURS and method == "GET" and "nobody" not in path:
                assert status < 400, cell


def _nobody(found: re.Match[str]) -> str:
    whole = {"name": "nobody", "format": "vllm", "revision": "1", "key_id": "nobodyskey00"}
    return whole.get(found[1], "00000000-0000-4000-8000-000000000000")
