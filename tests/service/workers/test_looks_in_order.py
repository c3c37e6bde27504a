"""Looks that are urgent go before all others, however many are due, and the queue stays short."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from sutler.service.db.api_tables import DeploymentRow
from sutler.service.db.asynchronous import begun, conninfo
from sutler.service.db.queue import LOOKS, URGENT_LOOKS, Queue
from sutler.service.db.watch_tables import WatchRow
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.repository import LEAST_DUE, MOST_DUE
from sutler.service.settings import StoreSettings
from tests.service.running import PATIENCE_S
from tests.service.web.stored import NOW, opened, put, run
from tests.service.webhooks.api import Api
from tests.service.webhooks.office import Office

LATE: Final = {"touches": 2, "looked": 1, "looked_at": NOW - timedelta(hours=1)}
LOST: Final = {**LATE, "urgent": 2}  # machines were reported since the last look
SHORT: Final = {**LATE, "state": {"status": "short"}}


def put_watched(engine: Engine, *watches: dict[str, Any]) -> list[UUID]:
    ids = [uuid4() for _ in watches]
    deployment: dict[str, Any] = {"problem": {}, "policy": {}}
    put(engine, DeploymentRow, *({"id": id_, "name": f"d-{id_}", "plan_id": uuid4(), **deployment} for id_ in ids))
    for id_, watch in zip(ids, watches, strict=True):
        put(engine, WatchRow, {"deployment_id": id_, **watch})
    return ids


def ask_for_looks(engine: Engine) -> None:
    """As every worker does every second."""

    async def ask() -> None:
        async with opened(engine) as store, begun(store) as connection:
            queue = Queue(conninfo(store))
            await repository.overtake(connection)
            for deployment_id, is_urgent in await repository.due(connection, NOW):
                await queue.look(connection, deployment_id, is_urgent=is_urgent)

    asyncio.run(ask())


def queued(engine: Engine, queue: str) -> list[UUID]:
    """In the order in which workers take them."""
    wanted = text(
        "SELECT (args ->> 'deployment_id')::uuid FROM procrastinate_jobs WHERE queue_name = :queue "
        "AND status = 'todo' ORDER BY priority DESC, id"
    )
    with engine.connect() as connection:
        return list(connection.scalars(wanted, {"queue": queue}))


def touch(engine: Engine, ids: Sequence[UUID]) -> None:
    for id_ in ids:
        run(engine, f"UPDATE watch SET touches = touches + 1, urgent = touches + 1 WHERE deployment_id = '{id_}'")


def test_what_is_urgent_is_queued_apart_however_much_is_due(engine: Engine) -> None:
    *routine, lost, short = put_watched(engine, *[LATE] * (MOST_DUE + 30), LOST, SHORT)
    ask_for_looks(engine)
    assert set(queued(engine, URGENT_LOOKS)) == {lost, short}
    assert len(queued(engine, LOOKS)) == MOST_DUE - 2
    assert set(queued(engine, LOOKS)) < set(routine)


def test_a_full_queue_takes_a_few_more_and_urgent_ones_first(engine: Engine) -> None:
    put_watched(engine, *[LATE] * (MOST_DUE + 2 * LEAST_DUE))
    ask_for_looks(engine)
    [lost] = put_watched(engine, LOST)
    ask_for_looks(engine)
    assert queued(engine, URGENT_LOOKS) == [lost]
    assert len(queued(engine, LOOKS)) == MOST_DUE + LEAST_DUE - 1


def test_a_look_that_waits_already_overtakes_the_others_once_it_is_urgent(engine: Engine) -> None:
    ids = put_watched(engine, *[LATE] * 5)
    ask_for_looks(engine)
    touch(engine, ids[3:4])
    with engine.connect() as connection:
        connection.exec_driver_sql(f'LISTEN "procrastinate_queue_v1#{URGENT_LOOKS}"')
        connection.commit()
        ask_for_looks(engine)
        listening: Any = connection.connection.driver_connection
        assert list(listening.notifies(timeout=PATIENCE_S, stop_after=1))  # who takes them hears of it
    assert queued(engine, URGENT_LOOKS) == [ids[3]]
    assert len(queued(engine, LOOKS)) == 4


def test_readyz_tells_where_losses_wait(
    engine: Engine, empty_store: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTLER_DATABASE_URL", empty_store.database_url or "")
    put_watched(engine, LOST, LOST)
    ask_for_looks(engine)
    with Office(engine) as office, Api(office) as api:
        assert "losses" not in api.probe()
        run(engine, "UPDATE procrastinate_events SET at = now() - interval '61 seconds'")
        assert api.probe()["losses"].startswith("2 deployments that lost machines")


def test_what_was_looked_at_since_is_urgent_no_more(engine: Engine) -> None:
    [_] = put_watched(engine, {**LATE, "touches": 3, "looked": 2, "urgent": 2})
    ask_for_looks(engine)
    assert not queued(engine, URGENT_LOOKS)
    assert len(queued(engine, LOOKS)) == 1
