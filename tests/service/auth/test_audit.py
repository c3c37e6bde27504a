"""The audit log: written with the change or not at all, read in pages by who may."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from httpx import AsyncClient, Response
from sqlalchemy import Engine

from sutler.service.auth import audit
from sutler.service.db.asynchronous import begun
from sutler.service.web.caller import CLI, SCOPES, Caller, Principal
from sutler.service.web.paging import encode_cursor
from tests.service.auth.builders import Process, a_client, a_process, run, with_key

ME = Principal("key/me", "plan")


def listed(engine: Engine, query: str, *, changes: Sequence[str] = (), needs_key: bool = False) -> Response:
    """The audit log with these changes, as `ACTOR ACTION TARGET`, as someone without a key asks for it."""

    async def asked() -> Response:
        async with a_process(engine, needs_key=needs_key) as process, a_client(process) as client:
            await note(process, changes)
            return await client.get(f"/v1/audit{query}")

    return run(asked())


async def note(process: Process, changes: Sequence[str]) -> None:
    for change in changes:
        actor, action, target = change.split()
        async with begun(process.engine) as connection:
            await audit.note(connection, Caller(Principal(actor, "admin"), "r-1"), action, target)


def targets(answer: Response) -> list[str]:
    return [item["target"] for item in answer.json()["items"]]


def test_a_change_is_told_in_full(engine: Engine) -> None:
    async def asked() -> dict[str, Any]:
        async with a_process(engine, needs_key=False) as process, a_client(process) as client:
            async with begun(process.engine) as connection:
                detail = {"version": 2, "was": None, "why": "äöü \u202e"}
                await audit.note(connection, Caller(ME, "r-1"), "deployment.update", "deployment/chat", detail)
            (item,) = (await client.get("/v1/audit")).json()["items"]
            return dict(item)

    item = run(asked())
    assert item.pop("at").endswith("Z")
    assert item.pop("id") > 0
    assert item == {
        "actor": "key/me",
        "action": "deployment.update",
        "target": "deployment/chat",
        "request_id": "r-1",
        "detail": {"version": 2, "was": None, "why": "äöü \u202e"},
    }


def test_an_undone_change_leaves_no_trace(engine: Engine) -> None:
    class UndoneError(Exception):
        pass

    async def tried() -> object:
        async with a_process(engine) as process:
            with suppress(UndoneError):
                async with begun(process.engine) as connection:
                    await audit.note(connection, Caller(ME, None), "a", "t")
                    raise UndoneError
            return await process.run("SELECT * FROM audit")

    assert run(tried()) == []


def test_making_and_revoking_a_key_is_told_without_its_secret(engine: Engine) -> None:
    async def tried() -> tuple[str, list[Any]]:
        async with a_process(engine) as process:
            made = (await process.a_key(name="ci", scope="read")).made
            await process.revoke(made.id)
            await process.revoke(made.id)
            return made.id, await process.run("SELECT actor, action, target, detail FROM audit ORDER BY id")

    key_id, found = run(tried())
    detail = {"name": "ci", "scope": "read", "weight": 1, "expires_at": None}
    assert found == [
        (CLI.principal.actor, "key.create", f"key/{key_id}", detail),
        (CLI.principal.actor, "key.revoke", f"key/{key_id}", {}),
    ]


def test_the_newest_comes_first(engine: Engine) -> None:
    answer = listed(engine, "", changes=["a x t/1", "a x t/2", "b y t/3"])
    assert targets(answer) == ["t/3", "t/2", "t/1"]
    assert answer.json()["next"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?actor=key/a", ["t/2", "t/1"]),
        ("?action=y", ["t/3", "t/2"]),
        ("?target=t/1", ["t/1"]),
        ("?actor=key/a&action=y", ["t/2"]),
        ("?actor=key/c", []),
        ("?actor=' OR true --", []),
        ("?actor=key/_", []),
    ],
)
def test_what_is_asked_for_is_told(engine: Engine, query: str, expected: list[str]) -> None:
    answer = listed(engine, query, changes=["key/a x t/1", "key/a y t/2", "key/b y t/3"])
    assert targets(answer) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 200])
def test_the_pages_together_are_the_whole_log_each_change_once(engine: Engine, limit: int) -> None:
    async def asked() -> tuple[list[str], list[int]]:
        async with a_process(engine, needs_key=False) as process, a_client(process) as client:
            await note(process, [f"a x t/{number}" for number in range(5)])
            pages = await all_pages(process, client, limit)
            return [target for page in pages for target in targets(page)], [len(targets(page)) for page in pages]

    found, lengths = run(asked())
    assert found == ["t/4", "t/3", "t/2", "t/1", "t/0"]
    assert all(length == limit for length in lengths[:-1])
    assert 1 <= lengths[-1] <= limit


async def all_pages(process: Process, client: AsyncClient, limit: int) -> list[Response]:
    """Something is changed between any two of them."""
    pages = [await client.get(f"/v1/audit?limit={limit}")]
    while pages[-1].json()["next"] is not None and len(pages) < 10:
        await note(process, ["a x t/later"])
        pages.append(await client.get("/v1/audit", params={"limit": limit, "cursor": pages[-1].json()["next"]}))
    return pages


@pytest.mark.parametrize(
    "query",
    [
        "?cursor=x",
        "?cursor=",
        f"?cursor={encode_cursor('x')}",
        f"?cursor={encode_cursor(-1)}",
        f"?cursor={encode_cursor(0)}",
        f"?cursor={encode_cursor(2**63)}",
        f"?cursor={encode_cursor('9' * 300)}",
        f"?cursor={encode_cursor('²')}",
        f"?cursor={encode_cursor(1, 2)}",
        "?limit=0",
        "?limit=201",
        "?limit=x",
        "?actor=",
        "?actor=%00",
        "?action=a%0Ab",
        f"?target={'x' * 201}",
    ],
)
def test_a_wrong_parameter_is_refused_with_its_name(engine: Engine, query: str) -> None:
    answer = listed(engine, query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == query[1:].partition("=")[0]


def test_only_an_admin_reads_the_audit_log(engine: Engine) -> None:
    async def asked() -> list[int]:
        async with a_process(engine) as process, a_client(process) as client:
            keys = [(await process.a_key(scope=scope)).made.text for scope in SCOPES]
            return [(await client.get("/v1/audit", headers=with_key(key))).status_code for key in keys]

    assert run(asked()) == [403, 403, 200]
    assert listed(engine, "", needs_key=True).status_code == 401
