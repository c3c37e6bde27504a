"""`/v1/keys`: an admin makes, lists, renews and revokes the keys of their project; none reaches beyond theirs."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from sutler.service.auth.keys import parse_key
from sutler.service.cli.app import app
from sutler.service.settings import StoreSettings
from tests.service.auth.builders import bearer, secret_of
from tests.service.builders import CHAT
from tests.service.webhooks.api import Api
from tests.service.webhooks.office import Office

CI: Final = {"name": "ci", "scope": "plan"}
ASYNC: Final = {"Prefer": "respond-async"}


def sutler(*words: str) -> Any:
    done = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def made_here(scope: str, *options: str) -> str:
    key: str = sutler("keys", "create", "by the operator", "--scope", scope, *options)["key"]
    return key


@pytest.fixture
def api(engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Of two projects; without a worker."""
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    sutler("projects", "create", "other")
    with Office(engine) as office, Api(office) as made:
        yield made


def ask(api: Api, key: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    content = {} if body is None else {"json": body}
    return api.ask_at(method, path, headers={"Authorization": bearer(key), **headers}, **content)


def id_of(key: str) -> str:
    return key.split("_")[1]


def test_a_key_is_shown_once_and_let_in(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin = made_here("admin")
    answer = ask(api, admin, "POST", "/keys", {**CI, "expires_in": "90d"})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert parse_key(made["key"]) is not None
    assert answer.headers["Cache-Control"] == "no-store"
    assert (made["name"], made["scope"], made["project"]) == ("ci", "plan", "default")
    lifetime = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lifetime.days == 90
    assert ask(api, made["key"], "GET", "/plans").status_code == 200
    assert ask(api, made["key"], "GET", "/keys").status_code == 403
    listed = ask(api, admin, "GET", "/keys")
    assert [one["id"] for one in listed.json()["items"]] == [id_of(admin), made["id"]]
    audit = ask(api, admin, "GET", "/audit").text
    for told in (listed.text, audit, caplog.text):
        assert secret_of(made["key"]) not in told
    assert f'"actor":"key/{id_of(admin)}","action":"key.create"' in audit


def test_the_pages_of_the_list_are_all_keys_each_once(api: Api) -> None:
    admin = made_here("admin")
    made = [ask(api, admin, "POST", "/keys", {**CI, "name": f"k{i}"}).json()["id"] for i in range(4)]
    found, cursor = [], ""
    while cursor is not None:
        page = ask(api, admin, "GET", f"/keys?limit=2{f'&cursor={cursor}' if cursor else ''}").json()
        found += [one["id"] for one in page["items"]]
        cursor = page["next"]
    assert found == [id_of(admin), *made]
    assert ask(api, admin, "GET", "/keys?cursor=WyJ4IiwieCJd").status_code == 422


def test_a_key_is_of_its_maker_s_project_and_reaches_no_other_key(api: Api) -> None:
    ours, theirs = made_here("admin"), made_here("admin", "--project", "other")
    made = ask(api, theirs, "POST", "/keys", CI).json()
    assert made["project"] == "other"
    assert made["id"] not in ask(api, ours, "GET", "/keys").text
    for method, path in (("POST", f"/keys/{made['id']}/rotate"), ("DELETE", f"/keys/{made['id']}")):
        assert ask(api, ours, method, path).status_code == 404
    assert ask(api, made["key"], "GET", "/plans").status_code == 200


@pytest.mark.parametrize(
    ("wanted", "field"),
    [({"weight": 3}, "weight"), ({"expires_in": "2d"}, "expires_in")],
)
def test_nobody_makes_a_key_that_reaches_further_than_their_own(api: Api, wanted: dict[str, Any], field: str) -> None:
    admin = made_here("admin", "--weight", "2", "--expires-in", "1d")
    answer = ask(api, admin, "POST", "/keys", {**CI, **wanted})
    assert answer.status_code == 403
    (problem,) = answer.json()["errors"]
    assert problem["field"] == field
    assert "nobody makes a key that reaches further than their own" in problem["remedy"]
    assert len(ask(api, admin, "GET", "/keys").json()["items"]) == 1


@pytest.mark.parametrize("scope", ["read", "plan"])
def test_who_is_no_admin_makes_no_key_at_all(api: Api, scope: str) -> None:
    for body in (CI, {**CI, "scope": "admin"}):
        assert ask(api, made_here(scope), "POST", "/keys", body).status_code == 403


def test_a_key_expires_with_its_maker_unless_it_is_to_sooner(api: Api) -> None:
    admin = made_here("admin", "--expires-in", "1d")
    (own,) = ask(api, admin, "GET", "/keys").json()["items"]
    made = ask(api, admin, "POST", "/keys", CI).json()
    assert made["expires_at"] <= own["expires_at"]
    assert ask(api, admin, "POST", "/keys", {**CI, "expires_in": "1h"}).json()["expires_at"] < made["expires_at"]


def test_nobody_renews_a_key_that_reaches_further_than_their_own(api: Api) -> None:
    admin, wide = made_here("admin", "--expires-in", "1d"), made_here("plan")
    assert ask(api, admin, "POST", f"/keys/{id_of(wide)}/rotate").status_code == 403
    assert ask(api, wide, "GET", "/plans").status_code == 200
    assert ask(api, admin, "DELETE", f"/keys/{id_of(wide)}").status_code == 204  # to take away is no reach


def test_a_key_that_was_renewed_is_the_same_with_another_secret(api: Api) -> None:
    admin, old = made_here("admin"), made_here("plan", "--weight", "1")
    before = ask(api, old, "GET", "/plans")
    answer = ask(api, admin, "POST", f"/keys/{id_of(old)}/rotate")
    assert answer.status_code == 200, answer.text
    new = answer.json()
    assert (before.status_code, new["id"], new["scope"]) == (200, id_of(old), "plan")
    assert ask(api, old, "GET", "/plans").status_code == 401
    assert ask(api, new["key"], "GET", "/plans").status_code == 200


def test_a_key_that_was_revoked_is_refused_and_not_renewed(api: Api) -> None:
    admin, key = made_here("admin"), made_here("read")
    assert ask(api, key, "GET", "/plans").status_code == 200
    for _ in range(2):
        assert ask(api, admin, "DELETE", f"/keys/{id_of(key)}").status_code == 204
    assert ask(api, key, "GET", "/plans").status_code == 401
    answer = ask(api, admin, "POST", f"/keys/{id_of(key)}/rotate")
    assert (answer.status_code, "make a new one" in answer.text) == (409, True)


def test_a_whole_key_in_a_path_is_not_repeated(api: Api) -> None:
    admin = made_here("admin")
    answer = ask(api, admin, "DELETE", f"/keys/{admin}")
    assert answer.status_code == 404
    assert secret_of(admin) not in answer.text


def test_who_needs_no_key_is_an_admin_of_the_default_project(api: Api) -> None:
    made = api.ask_at("POST", "/keys", json={**CI, "weight": 100})
    assert (made.status_code, made.json()["project"]) == (201, "default")
    theirs = made_here("read", "--project", "other")
    assert id_of(theirs) not in api.ask_at("GET", "/keys").text


def test_the_requests_of_a_project_are_limited_together(api: Api) -> None:
    keys = [made_here("read", "--project", "other") for _ in range(2)]
    sutler("projects", "limit", "other", "--most-requests-per-minute", "3")
    answers = [ask(api, keys[i % 2], "GET", "/plans") for i in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    problem = answers[3].json()
    assert problem["type"].endswith("quota-used-up")
    (field,) = problem["errors"]
    assert (field["field"], field["value"]) == ("most_requests_per_minute", "3")
    assert "sutler projects limit" in field["remedy"]
    assert int(answers[3].headers["Retry-After"]) > 0
    assert ask(api, made_here("read"), "GET", "/plans").status_code == 200


def test_a_project_keeps_no_more_plans_than_it_may(api: Api) -> None:
    sutler("projects", "limit", "other", "--most-stored-plans", "2")
    key = made_here("plan", "--project", "other")
    asked = [
        ("/plans", CHAT),
        ("/what-ifs", {"problem": CHAT, "variants": [{"budget_usd_per_hour": 3}]}),
        ("/plans", CHAT),
        ("/deployments", {"name": "chat", "problem": CHAT}),
    ]
    answers = [ask(api, key, "POST", path, body, **ASYNC) for path, body in asked]
    assert [answer.status_code for answer in answers] == [202, 202, 429, 429]
    (field,) = answers[2].json()["errors"]
    assert (field["field"], field["value"]) == ("most_stored_plans", "2")
    assert "DELETE /v1/plans/ID" in field["remedy"]
    assert ask(api, key, "GET", "/deployments").json()["items"] == []
    one = answers[0].json()["url"].removeprefix("/v1")
    assert ask(api, key, "POST", f"{one}/cancel").status_code == 200
    assert ask(api, key, "DELETE", one).status_code == 204
    assert [ask(api, key, "POST", "/plans", CHAT, **ASYNC).status_code for _ in range(2)] == [202, 429]
    assert ask(api, made_here("plan"), "POST", "/plans", CHAT, **ASYNC).status_code == 202
    sutler("projects", "limit", "other", "--most-stored-plans", "0")
    assert ask(api, key, "POST", "/plans", CHAT, **ASYNC).status_code == 202


def test_plans_of_a_limited_project_wait_in_as_many_lines_as_may_be_made_at_once(api: Api) -> None:
    """The queue takes one of each line at a time."""
    sutler("projects", "limit", "other", "--most-solves-at-once", "2")
    key = made_here("plan", "--project", "other")
    for _ in range(4):
        assert ask(api, key, "POST", "/plans", CHAT, **ASYNC).status_code == 202
    assert ask(api, made_here("plan"), "POST", "/plans", CHAT, **ASYNC).status_code == 202
    lines = [line for (line,) in api.office.rows("SELECT lock FROM procrastinate_jobs ORDER BY id")]
    assert lines == ["solves/other/1", "solves/other/2", "solves/other/1", "solves/other/2", None]
    fetched = "SELECT id FROM procrastinate_fetch_job_v2(NULL, NULL) WHERE id IS NOT NULL"
    with api.office._sync.begin() as connection:
        taken = [connection.exec_driver_sql(fetched).all() for _ in range(4)]
    assert [len(rows) for rows in taken] == [1, 1, 1, 0]
