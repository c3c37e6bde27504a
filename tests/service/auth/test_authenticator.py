"""Who is let in: keys on a real database, remembered by several processes that hear of each other's changes."""

import asyncio
import hmac
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection

from sutler.service.auth.authenticator import LOOKUPS_AT_ONCE, REFUSAL_REMEMBERED_S, REMEMBERED_S
from sutler.service.auth.keys import NO_DIGEST, make_key
from sutler.service.auth.memory import ShortMemory
from sutler.service.db.asynchronous import begun
from sutler.service.db.errors import DatabaseError
from sutler.service.db.notices import key_topic
from sutler.service.web.caller import LOCAL, Principal, Scope
from sutler.service.web.errors import NotAuthenticatedError, RequestError
from tests.service.auth.builders import PATIENCE_S, UNKNOWN_KEY, a_process, basic, bearer, run, secret_of


@pytest.mark.parametrize("scope", ["read", "plan", "admin"])
def test_a_key_is_let_in_with_its_scope(engine: Engine, scope: Scope) -> None:
    async def tried() -> list[Principal]:
        async with a_process(engine) as process:
            new = await process.a_key(scope=scope)
            by_bearer = await process.principal(new.made.text)
            by_basic = await process.authenticator.principal(basic(f"terraform:{new.made.text}"))
            return [by_bearer, by_basic, Principal(f"key/{new.made.id}", scope)]

    by_bearer, by_basic, wanted = run(tried())
    assert by_bearer == by_basic == wanted


def test_without_a_key_only_who_needs_none_is_let_in(engine: Engine) -> None:
    async def tried() -> tuple[Principal, RequestError]:
        async with a_process(engine, needs_key=False) as open_to_all, a_process(engine) as closed:
            return await open_to_all.authenticator.principal(None), await closed.refusal(None)

    principal, refusal = run(tried())
    assert principal == LOCAL
    assert "a key is needed" in str(refusal)
    assert isinstance(refusal, NotAuthenticatedError)


@pytest.mark.parametrize("header", ["", "Bearer x", bearer(UNKNOWN_KEY)])
def test_a_wrong_key_is_refused_also_where_none_is_needed(engine: Engine, header: str) -> None:
    async def tried() -> RequestError:
        async with a_process(engine, needs_key=False) as process:
            return await process.refusal(header)

    assert isinstance(run(tried()), NotAuthenticatedError)


def test_a_wrong_secret_and_an_unknown_id_get_the_same_answer(engine: Engine) -> None:
    async def tried() -> set[str]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            other = make_key()
            wrong = [
                made.text.replace(secret_of(made.text), secret_of(other.text)),
                made.text.replace(made.id, other.id),
                other.text,
                UNKNOWN_KEY,
            ]
            return {str(await process.refusal(bearer(key))) for key in wrong}

    (answer,) = run(tried())
    assert "there is no such key" in answer


def test_every_shown_key_costs_one_comparison_of_digests(engine: Engine) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def same(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    async def tried() -> list[list[tuple[bytes, bytes]]]:
        found = []
        async with a_process(engine, same=same) as process:
            made = (await process.a_key()).made
            revoked = (await process.a_key()).made
            await process.revoke(revoked.id)
            wrong_secret = f"sutler_{made.id}_{secret_of(UNKNOWN_KEY)}"
            for key in (UNKNOWN_KEY, wrong_secret, revoked.text):
                await process.refusal(bearer(key))
                found.append(compared.copy())
                compared.clear()
            for _ in ("asked for", "remembered"):
                await process.principal(made.text)
                found.append(compared.copy())
                compared.clear()
        return found

    found = run(tried())
    assert [len(pairs) for pairs in found] == [1, 1, 1, 1, 1]
    assert all(len(digest) == 32 for pairs in found for pair in pairs for digest in pair)
    assert found[0][0][0] == NO_DIGEST


def test_no_secret_is_let_in_with_an_unknown_id_even_if_the_comparison_says_so(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine, same=lambda _one, _other: True) as process:
            return await process.refusal(bearer(UNKNOWN_KEY))

    assert isinstance(run(tried()), NotAuthenticatedError)


def test_an_expired_key_is_refused_with_a_remedy(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine) as process:
            made = (await process.a_key(lifetime=timedelta(hours=1))).made
            await process.run("UPDATE api_key SET expires_at = now()")
            return await process.refusal(bearer(made.text))

    assert "has expired: ask for a new one" in str(run(tried()))


def test_a_key_is_not_remembered_beyond_its_last_moment(engine: Engine) -> None:
    async def tried() -> tuple[list[str], list[str]]:
        async with a_process(engine) as process:
            made = (await process.a_key(lifetime=timedelta(hours=1))).made
            await process.run("UPDATE api_key SET expires_at = now() + interval '2 seconds'")
            await process.principal(made.text)
            with process.statements() as before:
                await process.principal(made.text)
            process.clock.now_s += 2.0
            with process.statements() as after:
                await asyncio.gather(process.principal(made.text), return_exceptions=True)
            return before, after

    before, after = run(tried())
    assert before == []
    assert len(after) == 1


def test_a_revoked_key_is_refused_and_is_told_so_only_with_its_secret(engine: Engine) -> None:
    async def tried() -> tuple[RequestError, RequestError]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.revoke(made.id)
            guessed = f"sutler_{made.id}_{secret_of(UNKNOWN_KEY)}"
            return await process.refusal(bearer(made.text)), await process.refusal(bearer(guessed))

    refusal, guess = run(tried())
    assert "was revoked: ask for a new one" in str(refusal)
    assert "there is no such key" in str(guess)


def test_a_remembered_key_needs_no_database(engine: Engine) -> None:
    async def tried() -> tuple[list[str], Principal]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            with process.statements() as found:
                for _ in range(100):
                    principal = await process.principal(made.text)
            return found, principal

    found, principal = run(tried())
    assert found == []
    assert principal.scope == "plan"


def test_a_key_is_remembered_for_a_few_seconds_only(engine: Engine) -> None:
    async def tried() -> list[str]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            process.clock.now_s += REMEMBERED_S
            with process.statements() as found:
                await process.principal(made.text)
            return found

    assert len(run(tried())) == 1
    assert REMEMBERED_S <= 10


def test_a_wrong_secret_is_refused_while_the_right_one_is_remembered(engine: Engine) -> None:
    async def tried() -> tuple[RequestError, Principal]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            refusal = await process.refusal(bearer(f"sutler_{made.id}_{secret_of(UNKNOWN_KEY)}"))
            return refusal, await process.principal(made.text)

    refusal, principal = run(tried())
    assert isinstance(refusal, NotAuthenticatedError)
    assert principal.scope == "plan"


def test_a_key_revoked_by_one_process_is_refused_by_another_that_remembers_it(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine) as here, a_process(engine) as there:
            made = (await here.a_key()).made
            await there.principal(made.text)
            await here.revoke(made.id)
            return await there.refusal_soon(made.text)

    assert "was revoked" in str(run(tried()))


def test_revoking_a_key_leaves_the_others_remembered(engine: Engine) -> None:
    async def tried() -> list[str]:
        async with a_process(engine) as process:
            mine, other = (await process.a_key()).made, (await process.a_key()).made
            for key in (mine, other):
                await process.principal(key.text)
            await process.revoke(mine.id)
            await process.refusal_soon(mine.text)
            with process.statements() as found:
                await process.principal(other.text)
            return found

    assert run(tried()) == []


def test_who_cannot_hear_of_changes_remembers_no_key(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine, is_listening=False) as deaf:
            made = (await deaf.a_key()).made
            await deaf.principal(made.text)
            await deaf.run("UPDATE api_key SET revoked_at = now()")
            return await deaf.refusal(bearer(made.text))

    assert "was revoked" in str(run(tried()))


def test_a_lost_connection_means_that_nothing_remembered_is_used(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            await process.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sutler notices'"
            )
            while process.notices.connected:
                await asyncio.sleep(0.01)
            await process.run("UPDATE api_key SET revoked_at = now()")
            return await process.refusal(bearer(made.text))

    assert "was revoked" in str(run(tried()))


def test_what_was_remembered_before_a_lost_connection_is_forgotten_after_it(engine: Engine) -> None:
    async def tried() -> RequestError:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            await process.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sutler notices'"
            )
            while process.notices.connected:
                await asyncio.sleep(0.01)
            await process.run("UPDATE api_key SET revoked_at = now()")
            while not process.notices.connected:
                await asyncio.sleep(0.01)
            return await process.refusal(bearer(made.text))

    assert "was revoked" in str(run(tried()))


def test_an_answer_that_a_notice_has_overtaken_is_not_remembered(engine: Engine) -> None:
    overtaking: list[str] = []

    async def tried() -> list[str]:
        def same(one: bytes, other: bytes) -> bool:
            """Called when the database has answered and before that is remembered."""
            if overtaking:
                process.notices.arrived(overtaking.pop())
            return one == other

        async with a_process(engine, same=same) as process:
            made = (await process.a_key()).made
            overtaking.append(key_topic(made.id))
            await process.principal(made.text)
            with process.statements() as found:
                await process.principal(made.text)
            return found

    assert len(run(tried())) == 1


def test_notices_of_other_things_change_nothing(engine: Engine) -> None:
    async def tried() -> list[str]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.principal(made.text)
            process.notices.arrived("deployment/chat")
            with process.statements() as found:
                await process.principal(made.text)
            return found

    assert run(tried()) == []


def test_a_refusal_is_remembered_for_a_moment(engine: Engine) -> None:
    async def tried() -> tuple[list[str], list[str]]:
        async with a_process(engine) as process:
            await process.refusal(bearer(UNKNOWN_KEY))
            with process.statements() as at_once:
                await process.refusal(bearer(UNKNOWN_KEY))
            process.clock.now_s += REFUSAL_REMEMBERED_S
            with process.statements() as later:
                await process.refusal(bearer(UNKNOWN_KEY))
            return at_once, later

    at_once, later = run(tried())
    assert at_once == []
    assert len(later) == 1


def test_nobody_can_fill_memory_with_keys() -> None:
    memory: ShortMemory[int, str] = ShortMemory(most=100)
    for number in range(1_000):
        memory.keep(number, "x", until_s=10.0)
    assert len(memory) == 100
    assert memory.get(999, now_s=9.0) == "x"
    assert memory.get(999, now_s=10.0) is None
    assert memory.get(0, now_s=9.0) is None


def test_a_flood_of_wrong_keys_leaves_connections_to_others(engine: Engine) -> None:
    async def tried() -> tuple[int, int]:
        most = 0
        async with a_process(engine) as process:
            flood = [asyncio.ensure_future(process.refusal(bearer(make_key().text))) for _ in range(100)]
            while not all(task.done() for task in flood):
                most = max(most, process.engine.sync_engine.pool.checkedout())  # type: ignore[attr-defined]
                await asyncio.sleep(0)
            return most, len([task.result() for task in flood])

    most, refused = run(tried())
    assert 1 <= most <= LOOKUPS_AT_ONCE
    assert refused == 100


def test_a_database_that_is_away_is_no_reason_to_call_a_key_wrong() -> None:
    async def tried() -> None:
        nowhere = create_engine("postgresql+psycopg://sutler@127.0.0.1:1/sutler")
        async with a_process(nowhere, is_listening=False) as process:
            await process.principal(UNKNOWN_KEY)

    with pytest.raises(DatabaseError):
        run(tried())


def test_the_use_of_a_key_is_noted_once_a_minute(engine: Engine) -> None:
    async def tried() -> list[bool]:
        found = []
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            for forward_s in (0.0, 10.0, 60.0):
                process.clock.now_s += forward_s
                await process.run("UPDATE api_key SET last_used_at = NULL")
                await process.principal(made.text)
                found.append((await process.run("SELECT last_used_at IS NOT NULL FROM api_key"))[0][0])
        return found

    assert run(tried()) == [True, False, True]


def test_nobody_waits_for_a_key_that_is_being_changed_to_note_its_use(engine: Engine) -> None:
    async def tried() -> Principal:
        async with a_process(engine) as process, a_process(engine) as other, asyncio.timeout(PATIENCE_S):
            made = (await process.a_key()).made
            async with begun(other.engine) as connection:
                await connection.execute(text("SELECT * FROM api_key FOR UPDATE"))
                return await process.principal(made.text)

    assert run(tried()).scope == "plan"


def test_two_processes_note_a_use_once(engine: Engine) -> None:
    async def tried() -> bool:
        async with a_process(engine) as here, a_process(engine) as there:
            made = (await here.a_key()).made
            await here.principal(made.text)
            first = await here.run("SELECT last_used_at FROM api_key")
            await there.principal(made.text)
            return bool(first == await here.run("SELECT last_used_at FROM api_key"))

    assert run(tried())


def test_a_refused_key_was_not_used(engine: Engine) -> None:
    async def tried() -> list[tuple[object]]:
        async with a_process(engine) as process:
            made = (await process.a_key()).made
            await process.refusal(bearer(f"sutler_{made.id}_{secret_of(UNKNOWN_KEY)}"))
            await process.revoke(made.id)
            await process.refusal(bearer(made.text))
            found: list[tuple[object]] = await process.run("SELECT last_used_at FROM api_key")
            return found

    assert run(tried()) == [(None,)]


def test_a_key_is_let_in_where_its_use_cannot_be_noted(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    def only_for_reading(connection: DBAPIConnection, _: object) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET default_transaction_read_only = on")
        connection.commit()

    async def tried() -> tuple[Principal, str]:
        async with a_process(engine) as process, a_process(engine) as reader:
            event.listen(reader.engine.sync_engine, "connect", only_for_reading)
            made = (await process.a_key()).made
            return await reader.principal(made.text), made.id

    principal, key_id = run(tried())
    assert principal.scope == "plan"
    assert f"the use of key {key_id} is not noted" in caplog.text
