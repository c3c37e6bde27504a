"""`sutler projects`, and what commands on the store do for one project."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.settings import StoreSettings


@pytest.fixture(autouse=True)
def store(empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    return empty_store


def sutler(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def told(*words: str) -> Any:
    done = sutler(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_there_is_always_one() -> None:
    (project,) = told("projects", "list")
    assert project["name"] == "default"
    assert project["most_stored_plans"] is None


def test_a_project_is_made_limited_and_listed() -> None:
    made = told("projects", "create", "research", "--most-solves-at-once", "2")
    assert (made["name"], made["most_solves_at_once"], made["most_requests_per_minute"]) == ("research", 2, None)
    told("projects", "limit", "research", "--most-stored-plans", "100")
    limited = told("projects", "limit", "research", "--most-solves-at-once", "0")
    assert (limited["most_solves_at_once"], limited["most_stored_plans"]) == (None, 100)
    assert [one["name"] for one in told("projects", "list")] == ["default", "research"]
    assert "no limit" in sutler("projects", "list").stdout


@pytest.mark.parametrize("name", ["", "Research", "a_b", "-a", "a-", "x" * 64, "a b"])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    done = sutler("projects", "create", "--", name)
    assert done.exit_code == 2
    assert "small letters" in done.stderr


def test_a_name_that_is_taken_is_refused() -> None:
    done = sutler("projects", "create", "default")
    assert (done.exit_code, "is a project already" in done.stderr) == (2, True)


def test_what_is_to_be_limited_has_to_be_said() -> None:
    assert sutler("projects", "limit", "default").exit_code == 2


@pytest.mark.parametrize("words", [("keys", "list"), ("keys", "create", "ci", "--scope", "read")])
def test_a_project_that_is_none_is_refused_with_the_remedy(words: tuple[str, ...]) -> None:
    done = sutler(*words, "--project", "nobody")
    assert done.exit_code == 2
    assert "sutler projects list" in done.stderr


def test_keys_are_listed_and_revoked_by_project() -> None:
    told("projects", "create", "research")
    key = told("keys", "create", "ci", "--scope", "read", "--project", "research")
    assert key["project"] == "research"
    assert told("keys", "list") == []
    assert [one["id"] for one in told("keys", "list", "--project", "research")] == [key["id"]]
    assert sutler("keys", "revoke", key["id"]).exit_code == 2
    assert sutler("keys", "revoke", key["id"], "--project", "research").exit_code == 0


def test_measurements_are_of_the_project_that_the_settings_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told("projects", "create", "research")
    monkeypatch.setenv("SUTLER_PROJECT", "nobody")
    done = sutler("profiles", "list")
    assert (done.exit_code, "sutler projects list" in done.stderr) == (2, True)
    monkeypatch.setenv("SUTLER_PROJECT", "research")
    assert told("profiles", "list") == []


def test_how_long_what_is_kept_is_said_listed_and_taken_back() -> None:
    kept = told("projects", "retention", "default", "--plans", "90d", "--audit", "2y")["kept_s"]
    assert kept == {"plans": 90 * 86_400, "audit": 2 * 365 * 86_400}
    assert told("projects", "retention", "default", "--plans", "2w")["kept_s"]["plans"] == 14 * 86_400
    assert "audit 2y, plans 2w" in sutler("projects", "list").stdout
    assert told("projects", "retention", "default", "--plans", "0", "--audit", "0")["kept_s"] == {}
    assert "as by default" in sutler("projects", "list").stdout


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ((), "at least one of the five"),
        (("--plans", "soon"), "--plans: 'soon': must be a length of time"),
        (("--plans", "59m"), "--plans: '59m': must be at least 1h"),
        (("--observations", "7d"), "--observations: '7d': must be at least 8d"),
    ],
)
def test_a_time_that_cannot_be_is_refused(words: tuple[str, ...], remedy: str) -> None:
    done = sutler("projects", "retention", "default", *words)
    assert (done.exit_code, remedy in done.stderr) == (2, True)
    assert "is none" in sutler("projects", "retention", "nobody", "--plans", "1d").stderr
