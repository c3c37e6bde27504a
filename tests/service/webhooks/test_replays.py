"""Deliveries that are sent again: the same id and body, and one job each, however many ask at once."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from sutler.service.db.asynchronous import begun
from sutler.service.outgoing.addresses import Network
from sutler.service.web.caller import LOCAL, Caller
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.webhooks import replays, repository
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.repository import FailedDeliveries
from sutler.service.webhooks.schemas import ReplayedResource
from sutler.service.webhooks.sending import Attempt, Message
from sutler.service.webhooks.service import MOST_ATTEMPTS
from tests.adapters.server import Reply, ScriptedServer
from tests.service.webhooks.office import EVENT, Office

AGAIN = Caller(LOCAL, "r-5")
SOME_AT_ONCE = 5


def test_a_failed_delivery_is_sent_again_with_the_same_id_and_body(office: Office) -> None:
    with ScriptedServer([Reply(500), Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
        office.given_up(delivery_id)
        replayed = office.replayed(delivery_id)
        assert (replayed.status, replayed.attempts, replayed.finished_at) == ("pending", 0, None)
        assert [(job.delivery_id, job.scheduled_at) for job in office.jobs()] == [(delivery_id, None)]
        office.delivered(delivery_id)
    first, second = receiver.requests
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    found = office.delivery(delivery_id)
    assert (found.status, found.attempts, found.last_error) == ("delivered", 1, None)


def test_a_delivered_one_is_sent_again_too(office: Office) -> None:
    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
        office.replayed(delivery_id)
        office.delivered(delivery_id)
        assert office.delivered(delivery_id) is None
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1
    assert len(receiver.requests) == 2


def test_the_attempts_of_a_replay_begin_anew(office: Office) -> None:
    with ScriptedServer([Reply(503)]) as receiver:
        office.registered(receiver.base_url)
        delivery_id = office.given_up(office.announced()[0])
        office.replayed(delivery_id)
        for _ in range(MOST_ATTEMPTS):
            office.delivered(delivery_id)
        assert office.delivered(delivery_id) is None
    assert len(receiver.requests) == MOST_ATTEMPTS
    assert (office.delivery(delivery_id).status, office.jobs()) == ("failed", [])


def test_a_pending_delivery_is_not_replayed_and_its_next_attempt_is_named(office: Office) -> None:
    with ScriptedServer([Reply(500)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        with pytest.raises(ConflictError, match="as soon as a worker is free"):
            office.replayed(delivery_id)
        office.delivered(delivery_id)
    (job,) = office.jobs()
    assert job.scheduled_at is not None
    with pytest.raises(ConflictError, match=f"next at {job.scheduled_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"):
        office.replayed(delivery_id)
    office.execute("UPDATE procrastinate_jobs SET status = 'doing'")
    with pytest.raises(ConflictError, match="is being tried now"):
        office.replayed(delivery_id)
    office.execute("DELETE FROM procrastinate_jobs")
    with pytest.raises(ConflictError, match="is pending: only"):
        office.replayed(delivery_id)
    assert office.audit()[1:] == []


def test_what_does_not_exist_is_not_replayed(office: Office) -> None:
    with pytest.raises(NotFoundError, match="GET /v1/deliveries"):
        office.replayed(uuid4())
    gone = office.registered()
    office.removed(gone)
    with pytest.raises(NotFoundError, match="GET /v1/webhooks"):
        office.all_replayed(gone)


async def one_replay(office: Office, delivery_id: UUID) -> None:
    async with begun(office.engine) as connection:
        await replays.replay(connection, office.queue, delivery_id, caller=AGAIN)


def test_replays_at_once_put_one_job_into_the_queue_and_send_once(office: Office) -> None:
    async def all_at_once(delivery_id: UUID) -> list[BaseException | None]:
        asked = (one_replay(office, delivery_id) for _ in range(SOME_AT_ONCE))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        delivery_id = office.given_up(office.announced()[0])
        outcomes = office.run(all_at_once(delivery_id))
        assert outcomes.count(None) == 1
        assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == SOME_AT_ONCE - 1
        assert [job.delivery_id for job in office.jobs()] == [delivery_id]
        office.delivered(delivery_id)
        assert office.delivered(delivery_id) is None
    assert len(receiver.requests) == 1
    assert [row[1] for row in office.audit()] == ["webhook.create", "delivery.replay"]


def test_replays_of_all_at_once_share_them(office: Office) -> None:
    webhook = office.registered()
    ids = {office.given_up(office.announced()[0]) for _ in range(20)}

    async def replay_all() -> ReplayedResource:
        async with begun(office.engine) as connection:
            return await replays.replay_failed(connection, office.queue, FailedDeliveries(webhook.id), caller=AGAIN)

    async def all_at_once() -> list[object]:
        asked = (*(replay_all() for _ in range(SOME_AT_ONCE)), *(one_replay(office, one) for one in sorted(ids)[:5]))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    outcomes = office.run(all_at_once())
    of_all = sum(outcome.replayed for outcome in outcomes if isinstance(outcome, ReplayedResource))
    assert of_all + outcomes.count(None) == len(ids)
    assert all(outcome is None or isinstance(outcome, ReplayedResource | ConflictError) for outcome in outcomes)
    assert sorted(job.delivery_id for job in office.jobs()) == sorted(ids)


def test_a_job_that_waits_for_a_day_does_not_delay_a_replay(office: Office) -> None:
    office.registered()
    (delivery_id,) = office.announced()
    office.execute("UPDATE delivery SET status = 'delivered', finished_at = now()")
    office.execute("UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 day'")
    office.replayed(delivery_id)
    assert [(job.delivery_id, job.scheduled_at) for job in office.jobs()] == [(delivery_id, None)]


def test_an_attempt_that_was_under_way_before_a_replay_leaves_one_job(office: Office) -> None:
    office.registered()
    (delivery_id,) = office.announced()
    office.take_jobs()

    def replayed_meanwhile(message: Message, *, allowed: tuple[Network, ...]) -> Attempt:
        asyncio.run_coroutine_threadsafe(end_and_replay(), loop[0]).result(20.0)
        return Attempt(False, 500, "answers 500", 0.1)

    async def end_and_replay() -> None:
        async with begun(office.engine) as connection:
            await connection.exec_driver_sql("UPDATE delivery SET status = 'failed', finished_at = now()")
        await one_replay(office, delivery_id)

    async def attempt() -> None:
        loop.append(asyncio.get_running_loop())
        await webhooks.deliver(
            office.engine, office.queue, delivery_id, allowed=(), sealer=office.sealer, send=replayed_meanwhile
        )

    loop: list[asyncio.AbstractEventLoop] = []
    office.run(attempt())
    assert [(job.delivery_id, job.scheduled_at) for job in office.jobs()] == [(delivery_id, None)]
    assert office.delivery(delivery_id).status == "pending"


def test_all_that_failed_of_one_webhook_are_replayed_and_no_others(office: Office) -> None:
    ours, other = office.registered(), office.registered()
    by_webhook: dict[UUID, list[UUID]] = {ours.id: [], other.id: []}
    for _ in range(2):
        for delivery_id in office.announced():
            by_webhook[office.delivery(delivery_id).webhook_id].append(delivery_id)
    pending = office.announced()
    for ids in by_webhook.values():
        for delivery_id in ids:
            office.given_up(delivery_id)
    done = office.all_replayed(ours)
    assert (done.replayed, done.remaining) == (2, 0)
    assert [job.delivery_id for job in office.jobs()] == by_webhook[ours.id]
    assert {office.delivery(one).status for one in by_webhook[other.id]} == {"failed"}
    assert {office.delivery(one).attempts for one in pending} == {0}
    assert office.all_replayed(ours).replayed == 0


def test_failed_ones_are_chosen_by_time_and_event(office: Office) -> None:
    webhook = office.registered("https://receiver.example/", EVENT, "plan.failed")
    old = office.given_up(office.announced()[0], ago="2 hours")
    new = office.given_up(office.announced()[0])
    of_other_event = office.given_up(office.announced("plan.failed")[0])
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert office.all_replayed(webhook, since=hour_ago, events=(EVENT,)).replayed == 1
    assert [job.delivery_id for job in office.jobs()] == [new]
    assert office.all_replayed(webhook, since=hour_ago).replayed == 1
    assert office.delivery(of_other_event).status == "pending"
    assert office.delivery(old).status == "failed"


def test_one_call_replays_so_many_the_oldest_first(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MOST_REPLAYED", 2)
    webhook = office.registered()
    ids = [office.given_up(office.announced()[0]) for _ in range(5)]
    found = [office.all_replayed(webhook) for _ in range(3)]
    assert [(done.replayed, done.remaining) for done in found] == [(2, 3), (2, 1), (1, 0)]
    assert [job.delivery_id for job in office.jobs()] == ids


def test_a_replay_of_an_old_delivery_is_not_forgotten_before_it_has_ended(office: Office) -> None:
    office.registered()
    delivery_id = office.given_up(office.announced()[0], ago="40 days")
    office.replayed(delivery_id)
    month_ago = datetime.now(UTC) - timedelta(days=30)
    assert office.changed(lambda c: repository.forget_old(c, month_ago)) == 0
    assert office.changed(lambda c: webhooks.put_back_lost(c, office.queue, before=datetime.now(UTC))) == []
    assert len(office.jobs()) == 1
