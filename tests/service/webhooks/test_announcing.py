"""Events become deliveries in the transaction of their cause."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from sutler.service.db.asynchronous import begun
from sutler.service.web.caller import LOCAL, Caller
from sutler.service.webhooks import repository
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.events import EVENTS, body_of
from tests.service.webhooks.office import DATA, EVENT, URL, Office


def test_an_event_becomes_a_delivery_and_a_job_for_every_webhook_that_wants_it(office: Office) -> None:
    wanting = [office.registered(URL, *events) for events in (["plan.issued"], ["plan.failed", "plan.issued"])]
    other = office.registered(URL, "plan.failed")
    office.announced()
    deliveries = [delivery for webhook in wanting for delivery in office.deliveries(webhook)]
    assert {job.delivery_id for job in office.jobs()} == {delivery.id for delivery in deliveries}
    assert [(d.event, d.status, d.attempts) for d in deliveries] == [(EVENT, "pending", 0)] * 2
    assert office.deliveries(other) == []


def test_the_first_attempt_is_due_at_once(office: Office) -> None:
    office.registered(URL)
    office.announced()
    assert [job.scheduled_at for job in office.jobs()] == [None]


def test_without_a_webhook_nothing_happens(office: Office) -> None:
    assert office.announced() == []


def test_every_event_can_be_asked_for_and_announced(office: Office) -> None:
    office.registered(URL, *EVENTS)
    for event in EVENTS:
        assert len(office.announced(event)) == 1


def test_the_body_has_type_time_and_data() -> None:
    body = json.loads(body_of(EVENT, DATA, at=datetime(2026, 11, 20, 12, 0, 0, 250_000, UTC)))
    assert body == {"type": EVENT, "timestamp": "2026-11-20T12:00:00.250000Z", "data": DATA}


def test_a_body_holds_nothing_that_is_not_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        body_of(EVENT, {"cost_usd_per_hour": float("nan")}, at=datetime.now(UTC))


@pytest.mark.parametrize("name", ["größe", "nul \x00", "half \ud800", 'quote " \\', "line\nbreak"])
def test_any_name_can_be_told(office: Office, name: str) -> None:
    office.registered(URL)
    (delivery_id,) = office.announced(data={"deployment": name})
    stored: list[Any] = []

    async def read(connection: Any) -> None:
        found = await connection.execute(text("SELECT body FROM delivery WHERE id = :id"), {"id": delivery_id})
        stored.append(found.scalar_one())

    office.read(read)
    assert json.loads(stored[0])["data"] == {"deployment": name}


def test_a_cause_that_is_rolled_back_announces_nothing(office: Office) -> None:
    webhook = office.registered(URL)

    async def fail(connection: Any) -> None:
        await webhooks.announce(connection, office.queue, event=EVENT, data=DATA)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        office.changed(fail)
    assert (office.deliveries(webhook), office.jobs()) == ([], [])


def test_a_webhook_that_is_deleted_meanwhile_does_not_undo_the_cause(office: Office) -> None:
    webhook = office.registered(URL)
    delivery_id = uuid4()

    async def remove() -> None:
        async with begun(office.engine) as connection:
            await webhooks.remove(connection, webhook.id, Caller(LOCAL, "r"))

    async def race() -> None:
        async with begun(office.engine) as connection:
            wanting = await repository.wanting(connection, EVENT)
            removing = asyncio.create_task(remove())
            await asyncio.sleep(0.1)
            await repository.add_deliveries(connection, [delivery_id], wanting, event=EVENT, body="{}")
        await removing

    office.run(race())
    assert office.webhooks() == []
    assert office.delivered(delivery_id) is None
