"""Lives of rented machines: what reports begin and end, what counts as lost, and who learns of it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import begun, open_async_engine
from sutler.service.deployments.holdings import lives_repository as lives
from sutler.service.deployments.holdings.lives import Ends, Loss, ends
from sutler.service.deployments.holdings.schemas import HoldingDocument, MachineKey
from sutler.service.deployments.repository import find_by_id, remove
from sutler.service.documents.market import OfferDocument

T = TypeVar("T")
Report = tuple[Mapping[MachineKey, int], Mapping[MachineKey, Ends]]

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY: MachineKey = ("acme", "spot", "interruptible", "h100-sxm", 1)
PLACE = OfferDocument(
    provider="acme",
    offer_id="spot",
    gpu="h100-sxm",
    gpus=1,
    available=4,
    price_usd_per_hour=1.0,
    contract="interruptible",
    machine_id="m7",
    host_id="h7",
    region="oslo",
)
ON_THE_STORE = '{"market": {}}'
OF_ITS_OWN = '{"market": {"offers": []}}'


def held(count: int, **others: Any) -> tuple[HoldingDocument, ...]:
    names = ("provider", "offer_id", "contract", "gpu", "gpus")
    given = {**dict(zip(names, KEY, strict=True)), "price_usd_per_hour": 1.0, **others}
    return (HoldingDocument(count=count, **given),) if count else ()


def went(before: int, after: int, wanted: int, **others: Any) -> tuple[int, int]:
    """(machines that went, those of them that were lost)."""
    found = ends(held(before, **others), held(after), held(wanted), NOW)
    return (found[KEY].count, found[KEY].lost) if found else (0, 0)


@pytest.mark.parametrize(
    ("before", "after", "wanted", "expected"),
    [
        (3, 3, 3, (0, 0)),
        (3, 4, 4, (0, 0)),
        (3, 1, 3, (2, 2)),
        (3, 0, 3, (3, 3)),
        (3, 1, 1, (2, 0)),
        (3, 1, 2, (2, 1)),
        (3, 1, 0, (2, 0)),
        (3, 2, 5, (1, 1)),
    ],
)
def test_lost_is_what_the_plan_wants_and_has_no_more(
    before: int, after: int, wanted: int, expected: tuple[int, int]
) -> None:
    assert went(before, after, wanted) == expected


def test_a_rental_that_ends_by_itself_is_not_lost() -> None:
    assert went(2, 0, 2, expires_at=NOW - MINUTE) == (2, 0)
    assert went(2, 0, 2, expires_at=NOW + MINUTE) == (2, 2)


def a_deployment(engine: Engine, problem: str = ON_THE_STORE) -> UUID:
    deployment_id = uuid4()
    with engine.begin() as connection:
        connection.execute(
            text("""INSERT INTO deployment (id, name, problem, policy, version, revision)
                    VALUES (:id, :name, CAST(:problem AS jsonb), '{}', 1, 0)"""),
            {"id": deployment_id, "name": f"life-{deployment_id.hex[:8]}", "problem": problem},
        )
    return deployment_id


def in_a_transaction(engine: Engine, do: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    async def done() -> T:
        opened = open_async_engine(engine)
        try:
            async with begun(opened) as connection:
                return await do(connection)
        finally:
            await opened.dispose()

    return asyncio.run(done())


def noted(
    engine: Engine, deployment_id: UUID, *reports: tuple[Mapping[MachineKey, int], Mapping[MachineKey, Ends]]
) -> None:
    """Reports a minute apart: what each adds and takes away."""

    async def note(connection: AsyncConnection) -> None:
        for number, (new, ended) in enumerate(reports):
            now, places = NOW + number * MINUTE, {KEY[:3]: PLACE}
            await lives.note(connection, deployment_id, begun=new, ended=ended, places=places, now=now)

    in_a_transaction(engine, note)


def stored(engine: Engine, deployment_id: UUID) -> list[tuple[int, float, float | None, bool]]:
    """(machines, minute of their begin, minute of their end, lost)."""
    question = text("""
        SELECT count, began_at, ended_at, is_lost FROM rental_life WHERE deployment_id = :id
        ORDER BY began_at, ended_at, is_lost""")
    with engine.connect() as connection:
        rows = connection.execute(question, {"id": deployment_id}).all()

    def minute(at: datetime) -> float:
        return (at - NOW) / MINUTE

    return [(row[0], minute(row[1]), None if row[2] is None else minute(row[2]), row[3]) for row in rows]


def lost(
    engine: Engine, deployment_id: UUID, *, since: datetime = NOW - MINUTE, is_shared: bool = True
) -> tuple[Loss, ...]:
    return in_a_transaction(engine, lambda c: lives.losses(c, deployment_id, since=since, is_shared=is_shared))


def test_those_that_go_are_the_newest_and_a_row_of_several_is_divided(engine: Engine) -> None:
    me = a_deployment(engine)
    noted(engine, me, ({KEY: 2}, {}), ({KEY: 3}, {}), ({}, {KEY: Ends(4, 1)}))
    assert stored(engine, me) == [(1, 0, 2, False), (1, 0, None, False), (2, 1, 2, False), (1, 1, 2, True)]
    (one,) = lost(engine, me)
    assert one == Loss("acme", "spot", "interruptible", "h100-sxm", "m7", "h7", "oslo", NOW + 2 * MINUTE, 1)


def test_machines_of_another_kind_or_deployment_stay(engine: Engine) -> None:
    me, other = a_deployment(engine), a_deployment(engine)
    of_two: MachineKey = (*KEY[:4], 2)
    noted(engine, other, ({KEY: 1}, {}))
    noted(engine, me, ({KEY: 1, of_two: 1}, {}), ({}, {KEY: Ends(1, 1)}))
    assert [row[2:] for row in stored(engine, me)] == [(1, True), (None, False)]
    assert [row[2:] for row in stored(engine, other)] == [(None, False)]


def test_who_plans_on_the_same_market_learns_of_losses_and_who_has_its_own_does_not(engine: Engine) -> None:
    me, other, apart = a_deployment(engine), a_deployment(engine), a_deployment(engine, OF_ITS_OWN)
    for each in (other, apart):
        noted(engine, each, ({KEY: 1}, {}), ({}, {KEY: Ends(1, 1)}))
    mine = [one.at for one in lost(engine, me)]
    assert len(lost(engine, other)) == len(mine) > 0
    assert len(lost(engine, apart, is_shared=False)) == 1
    assert len(lost(engine, me, is_shared=False)) == 0
    assert lost(engine, me, since=NOW + MINUTE) == ()


def test_lives_of_a_deployment_that_is_deleted_are_over_and_kept_for_a_while(engine: Engine) -> None:
    me = a_deployment(engine)
    noted(engine, me, ({KEY: 2}, {}))

    async def delete(connection: AsyncConnection) -> None:
        deployment = await find_by_id(connection, me)
        assert deployment is not None
        await remove(connection, deployment, NOW + 5 * MINUTE)

    in_a_transaction(engine, delete)
    question = "SELECT count, ended_at, is_lost FROM rental_life WHERE deployment_id IS NULL AND ended_at = :at"
    with engine.connect() as connection:
        found = connection.execute(text(question), {"at": NOW + 5 * MINUTE}).all()
    assert [tuple(row) for row in found] == [(2, NOW + 5 * MINUTE, False)]

    in_a_transaction(engine, lambda connection: lives.forget_old(connection, NOW + 6 * MINUTE))
    with engine.connect() as connection:
        assert connection.execute(text(question), {"at": NOW + 5 * MINUTE}).all() == []
