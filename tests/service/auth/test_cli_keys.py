"""`sutler keys` on a real database."""

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from sutler.service.auth.keys import make_key, parse_key
from sutler.service.cli.keys import keys
from sutler.service.cli.keys_of_the_store import any_key
from sutler.service.settings import StoreSettings
from tests.service.auth.builders import Process, a_process, bearer, run, secret_of

FORM = r"sutler_[a-z0-9]{12}_[A-Za-z0-9]{43}"


@pytest.fixture(autouse=True)
def store(empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    assert empty_store.database_url is not None
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url)
    return empty_store


def sutler_keys(*arguments: str) -> Result:
    return CliRunner().invoke(keys, list(arguments))


def created(*options: str) -> dict[str, Any]:
    result = sutler_keys("create", "ci", "--scope", "plan", "--json", *options)
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def listed() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sutler_keys("list", "--json").stdout)
    return found


def test_only_the_key_is_on_standard_output(store: StoreSettings) -> None:
    result = sutler_keys("create", "ci", "--scope", "plan")
    assert result.exit_code == 0
    key = result.stdout.removesuffix("\n")
    assert parse_key(key) is not None
    assert "It is shown only now" in result.stderr
    assert secret_of(key) not in result.stderr


def test_the_key_that_was_printed_is_let_in(engine: Engine) -> None:
    async def tried(key: str) -> tuple[str, str]:
        async with a_process(engine) as process:
            principal = await process.principal(key)
            return principal.actor, principal.scope

    new = created()
    assert run(tried(new["key"])) == (f"key/{new['id']}", "plan")


def test_json_has_the_key_and_what_is_known_of_it() -> None:
    new = created("--expires-in", "90d")
    assert set(new) == {
        *("key", "id", "name", "scope", "project", "weight", "created_at", "expires_at", "last_used_at", "revoked_at")
    }
    assert (new["name"], new["scope"], new["last_used_at"], new["revoked_at"]) == ("ci", "plan", None, None)
    assert new["expires_at"] > new["created_at"]
    assert new["expires_at"].endswith("Z")


def test_a_key_may_weigh_more() -> None:
    assert created("--weight", "4")["weight"] == 4
    assert sutler_keys("create", "ci", "--scope", "plan", "--weight", "0").exit_code == 2


@pytest.mark.parametrize("scope", ["", "root", "READ"])
def test_an_unknown_scope_is_refused(scope: str) -> None:
    assert sutler_keys("create", "ci", "--scope", scope).exit_code == 2
    assert sutler_keys("create", "ci").exit_code == 2
    assert listed() == []


@pytest.mark.parametrize(
    "length", ["", "90", "0d", "-1d", "1.5d", "d", "1q", "101000w", "999999999w", "9999999999d", "١d", "1d1h"]
)
def test_an_odd_lifetime_is_refused_with_a_remedy(length: str) -> None:
    result = sutler_keys("create", "ci", "--scope", "read", f"--expires-in={length}")
    assert result.exit_code == 2
    assert "--expires-in" in result.stderr
    assert "12h, 90d or 2y" in result.stderr
    assert listed() == []


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "a\x1b[31m", "\u202e"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    result = sutler_keys("create", name, "--scope", "read")
    assert result.exit_code == 2
    assert "printable" in result.stderr
    assert listed() == []


def test_the_list_shows_everything_but_secrets() -> None:
    forever, limited, revoked = created(), created("--expires-in", "12h"), created()
    sutler_keys("revoke", revoked["id"])
    table = sutler_keys("list").stdout
    rows = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in table.splitlines()[2:]]
    assert [row[:3] for row in rows] == [[key["id"], "ci", "plan"] for key in (forever, limited, revoked)]
    assert [row[3] for row in rows] == [key["created_at"][:10] for key in (forever, limited, revoked)]
    assert {row[4] for row in rows} == {"never"}
    until = limited["expires_at"].replace("T", " ")[:16]
    (revoked_at,) = [record["revoked_at"] for record in listed() if record["revoked_at"]]
    assert {row[5] for row in rows} == {"1"}
    assert [row[-1] for row in rows] == ["until revoked", f"until {until}", f"revoked {revoked_at[:10]}"]
    assert [record["id"] for record in listed()] == [forever["id"], limited["id"], revoked["id"]]
    for key in (forever, limited, revoked):
        assert secret_of(key["key"]) not in table + json.dumps(listed())


def test_where_there_are_no_keys_the_list_says_how_to_make_one() -> None:
    result = sutler_keys("list")
    assert result.stdout == ""
    assert "`sutler keys create NAME --scope plan` makes one" in result.stderr
    assert listed() == []


def test_an_expired_key_is_listed_as_such(engine: Engine) -> None:
    created("--expires-in", "1h")
    on_the_store(engine, "UPDATE api_key SET expires_at = now() - interval '1 hour'")
    assert "expired " in sutler_keys("list").stdout


def test_a_revoked_key_is_refused_by_a_running_process(engine: Engine) -> None:
    new = created()

    async def tried() -> str:
        async with a_process(engine) as process:
            await process.principal(new["key"])
            await process_of_its_own("revoke", new["id"])
            return str(await process.refusal_soon(new["key"]))

    assert "was revoked" in run(tried())


async def process_of_its_own(*arguments: str) -> None:
    """The command beside this event loop, as it runs beside an API process."""
    result = await asyncio.to_thread(sutler_keys, *arguments)
    assert result.exit_code == 0, result.stderr


def test_revoking_again_changes_nothing(engine: Engine) -> None:
    new = created()
    first, again = sutler_keys("revoke", new["id"]), sutler_keys("revoke", new["id"])
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.stdout == f"Key {new['id']} is revoked.\n"
    assert again.stdout == f"Key {new['id']} was revoked before.\n"
    assert [row[0] for row in on_the_store(engine, "SELECT action FROM audit ORDER BY id")] == [
        "key.create",
        "key.revoke",
    ]


def test_revoking_an_unknown_id_says_so() -> None:
    result = sutler_keys("revoke", "abcdefghijkl")
    assert result.exit_code == 2
    assert "'abcdefghijkl': is no key's: `sutler keys list` shows all" in result.stderr


def test_a_whole_key_given_as_id_is_not_repeated() -> None:
    key = created()["key"]
    result = sutler_keys("revoke", key)
    assert result.exit_code == 2
    assert "12 letters and digits" in result.stderr
    assert secret_of(key) not in result.stderr


def test_the_audit_log_says_that_the_command_line_did_it(engine: Engine) -> None:
    new = created()
    assert on_the_store(engine, "SELECT actor, action, target FROM audit") == [
        ("cli", "key.create", f"key/{new['id']}")
    ]


def test_only_a_key_that_is_let_in_counts_as_one(engine: Engine) -> None:
    assert not any_key()
    first = created("--expires-in", "1h")
    assert any_key()
    on_the_store(engine, "UPDATE api_key SET expires_at = now()")
    assert not any_key()
    second = created()
    assert any_key()
    sutler_keys("revoke", second["id"])
    assert not any_key()
    assert first["id"] != second["id"]


def test_help_is_quick_because_it_imports_nothing_heavy() -> None:
    heavy = ("sqlalchemy", "pydantic", "fastapi")
    code = f"import sys, sutler.service.cli.keys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_a_secret_is_nowhere_but_on_standard_output(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Made, used, refused, revoked and listed: it is in no log, no error and nowhere in the database."""
    caplog.set_level(logging.DEBUG)
    new = created()
    secret, guess = secret_of(new["key"]), make_key().text

    async def used() -> tuple[list[str], list[str]]:
        async with a_process(engine) as process:
            await process.principal(new["key"])
            wrong = new["key"].replace(secret, secret_of(guess))
            said = [str(await process.refusal(bearer(key))) for key in (wrong, guess)]
            await process.revoke(new["id"])
            await process.refusal_soon(new["key"])
            said.append(str(await process.refusal(f"Bearer  {new['key']}")))
            said.append(repr(vars(process.authenticator)))
            return said, await everything_stored(process)

    said, stored = run(used())
    assert sum(new["id"] in row for row in stored) >= 3  # the key itself and what the audit log says of it
    for word in (secret, secret_of(guess)):
        forms = (word, word.encode().hex(), repr(word.encode()))
        assert not [row for row in stored if any(form in row for form in forms)]
        assert not [text for text in (*said, caplog.text, sutler_keys("list").output) if word in text]


async def everything_stored(process: Process) -> list[str]:
    """Every row of every table as text, and what the server shows of queries."""
    tables = await process.run(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables "
        "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    rows: list[str] = []
    for (table,) in (*tables, ("pg_stat_activity",)):
        rows += [row[0] for row in await process.run(f"SELECT t::text FROM {table} t")]
    return rows


def on_the_store(engine: Engine, statement: str) -> Any:
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return [tuple(row) for row in result] if result.returns_rows else None
