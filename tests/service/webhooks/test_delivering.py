"""Deliveries from the first attempt to the last, with real receivers, on a real store and queue."""

import asyncio
import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from sutler.service.db.queue import DELIVER, DELIVERIES
from sutler.service.outgoing.addresses import Network
from sutler.service.webhooks import repository
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.sending import Attempt, Message
from sutler.service.webhooks.service import MOST_ATTEMPTS, WAITS_S
from tests.adapters.server import Received, Reply, ScriptedServer, redirect_reply
from tests.service.webhooks.builders import LOOPBACK, NOWHERE, SECRET, is_signed
from tests.service.webhooks.office import DATA, EVENT, Office


def test_an_event_arrives_signed_with_the_webhooks_secret(office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        office.registered(f"{receiver.base_url}/hook")
        (delivery_id,) = office.announced()
        attempt = office.delivered(delivery_id)
    (request,) = receiver.requests
    assert attempt is not None
    assert attempt.ok
    assert is_signed(request)
    assert request.headers["webhook-id"] == str(delivery_id)
    assert (request.data["type"], request.data["data"]) == (EVENT, DATA)
    found = office.delivery(delivery_id)
    assert (found.status, found.attempts, found.last_status_code, found.last_error) == ("delivered", 1, 204, None)
    assert found.finished_at is not None
    assert office.jobs() == []


def test_a_secret_that_is_made_signs_too(office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        office.registered(f"{receiver.base_url}/hook", secret=None)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
    assert not is_signed(receiver.requests[0], SECRET)
    assert len(receiver.requests[0].headers["webhook-signature"]) == len("v1,") + 44


def test_what_was_delivered_is_not_sent_again(office: Office) -> None:
    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        assert office.delivered(delivery_id) is not None
        assert office.delivered(delivery_id) is None
    assert len(receiver.requests) == 1
    assert office.delivery(delivery_id).attempts == 1


def test_a_failure_is_kept_and_tried_again_after_five_seconds(office: Office) -> None:
    with ScriptedServer([Reply(500), Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        before = datetime.now(UTC)
        office.delivered(delivery_id)
        found = office.delivery(delivery_id)
        assert (found.status, found.attempts, found.last_status_code) == ("pending", 1, 500)
        assert (found.last_error, found.finished_at) == ("answers 500", None)
        (job,) = office.jobs()
        assert job.delivery_id == delivery_id
        assert job.scheduled_at is not None
        assert before <= job.scheduled_at - timedelta(seconds=5) <= datetime.now(UTC)
        office.delivered(delivery_id)
    found = office.delivery(delivery_id)
    assert (found.status, found.attempts, found.last_error) == ("delivered", 2, None)
    first, second = receiver.requests
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])


def test_retries_follow_the_schedule_until_the_delivery_has_failed(office: Office) -> None:
    with ScriptedServer([Reply(503)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        for wait_s in WAITS_S:
            before = datetime.now(UTC)
            office.delivered(delivery_id, chance=1.0)
            (job,) = office.jobs()
            assert job.scheduled_at is not None
            assert before <= job.scheduled_at - timedelta(seconds=1.1 * wait_s) <= datetime.now(UTC)
        office.delivered(delivery_id)
        assert office.jobs() == []
        found = office.delivery(delivery_id)
        assert (found.status, found.attempts, found.last_error) == ("failed", MOST_ATTEMPTS, "answers 503")
        assert found.finished_at is not None
        assert office.delivered(delivery_id) is None
    assert len(receiver.requests) == MOST_ATTEMPTS
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_a_wait_that_the_receiver_asks_for_is_granted(office: Office) -> None:
    with ScriptedServer([Reply(429, headers={"Retry-After": "900"})]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        before = datetime.now(UTC)
        office.delivered(delivery_id)
    (job,) = office.jobs()
    assert job.scheduled_at is not None
    assert job.scheduled_at >= before + timedelta(seconds=900)


def test_a_failed_job_that_runs_twice_leaves_one_job_for_the_next_attempt(office: Office) -> None:
    with ScriptedServer([Reply(500)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
        office.run(webhooks.deliver(office.engine, office.queue, delivery_id, allowed=LOOPBACK, sealer=office.sealer))
    assert len(office.jobs()) == 1


def test_two_workers_with_one_job_count_one_success(office: Office) -> None:
    async def both(delivery_id: UUID) -> None:
        await asyncio.gather(
            *(
                webhooks.deliver(office.engine, office.queue, delivery_id, allowed=LOOPBACK, sealer=office.sealer)
                for _ in range(2)
            )
        )

    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.take_jobs()
        office.run(both(delivery_id))
    found = office.delivery(delivery_id)
    assert (found.status, found.attempts, office.jobs()) == ("delivered", 1, [])


def test_a_success_counts_though_another_attempt_has_failed_meanwhile(office: Office) -> None:
    has_begun, has_failed = threading.Event(), threading.Event()

    def succeed_late(message: Message, *, allowed: tuple[Network, ...]) -> Attempt:
        has_begun.set()
        has_failed.wait(20.0)
        return Attempt(True, 200, None, 0.1)

    def fail(message: Message, *, allowed: tuple[Network, ...]) -> Attempt:
        return Attempt(False, 500, "answers 500", 0.1)

    async def both(delivery_id: UUID) -> None:
        async def one(send: webhooks.Send) -> None:
            await webhooks.deliver(
                office.engine, office.queue, delivery_id, allowed=LOOPBACK, sealer=office.sealer, send=send
            )

        late = asyncio.create_task(one(succeed_late))
        await asyncio.to_thread(has_begun.wait, 20.0)
        await one(fail)
        has_failed.set()
        await late

    office.registered("https://receiver.example/")
    (delivery_id,) = office.announced()
    office.run(both(delivery_id))
    assert office.delivery(delivery_id).status == "delivered"
    assert office.delivered(delivery_id) is None


def test_410_removes_the_webhook_with_all_that_was_on_its_way(office: Office) -> None:
    with ScriptedServer([Reply(410)]) as receiver:
        gone, other = office.registered(receiver.base_url), office.registered(receiver.base_url, "plan.failed")
        first, second = [*office.announced(), *office.announced()]
        office.delivered(first)
        assert office.delivered(second) is None
    assert [webhook.id for webhook in office.webhooks()] == [other.id]
    assert office.deliveries(gone) == []
    assert office.jobs() == []
    assert len(receiver.requests) == 1
    assert office.audit()[-1] == ("receiver", "webhook.delete", f"webhook/{gone.id}", {"reason": "410 Gone"})


def test_nothing_is_sent_to_a_webhook_that_was_deleted(office: Office) -> None:
    with ScriptedServer([Reply(200)]) as receiver:
        webhook = office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.removed(webhook)
        assert office.delivered(delivery_id) is None
    assert receiver.requests == []


def test_a_webhook_may_be_deleted_while_an_attempt_is_under_way(office: Office) -> None:
    def delete_it(_: Received) -> Reply:
        office.execute("DELETE FROM webhook")
        return Reply(500)

    with ScriptedServer(delete_it) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
    assert (office.webhooks(), office.jobs()) == ([], [])


def test_a_network_that_is_no_longer_allowed_gets_nothing(office: Office) -> None:
    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id, allowed=NOWHERE)
    assert receiver.requests == []
    assert "SUTLER_OUTGOING_NETWORKS" in (office.delivery(delivery_id).last_error or "")


def test_a_redirect_into_the_private_network_is_a_failure_that_says_so(office: Office) -> None:
    with ScriptedServer([Reply(200)]) as inner, ScriptedServer([redirect_reply(inner.base_url)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        office.delivered(delivery_id)
    assert inner.requests == []
    assert "redirects are not followed" in (office.delivery(delivery_id).last_error or "")


def test_what_lost_its_job_is_put_back_once(office: Office) -> None:
    office.registered("https://receiver.example/")
    lost, kept = [*office.announced(), *office.announced()]
    office.execute("DELETE FROM procrastinate_jobs WHERE args ->> 'delivery_id' = :id", id=str(lost))
    later = datetime.now(UTC) + timedelta(hours=1)

    def put_back(before: datetime) -> list[UUID]:
        return list(office.changed(lambda c: webhooks.put_back_lost(c, office.queue, before=before)))

    assert put_back(later - timedelta(hours=2)) == []
    assert put_back(later) == [lost]
    assert put_back(later) == []
    assert {job.delivery_id for job in office.jobs()} == {lost, kept}


def test_old_deliveries_are_forgotten_once_they_have_ended(office: Office) -> None:
    with ScriptedServer([Reply(200), Reply(500)]) as receiver:
        webhook = office.registered(receiver.base_url)
        delivered, pending = [*office.announced(), *office.announced()]
        office.delivered(delivered)
        office.delivered(pending)
    office.execute("UPDATE delivery SET finished_at = now() - interval '2 days' WHERE id = :id", id=delivered)
    day_ago = datetime.now(UTC) - timedelta(days=1)
    assert office.changed(lambda c: repository.forget_old(c, day_ago)) == 1
    assert office.changed(lambda c: repository.forget_old(c, datetime.now(UTC) + timedelta(days=1))) == 0
    assert [delivery.id for delivery in office.deliveries(webhook)] == [pending]


def test_neither_secret_nor_url_nor_body_reaches_a_log(office: Office, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer([Reply(500), Reply(200), Reply(410)]) as receiver:
        office.registered(f"{receiver.base_url}/hunter2?hunter2")
        for delivery_id in office.announced(data={"hunter2": 1}):
            office.delivered(delivery_id)
            office.delivered(delivery_id)
        for delivery_id in office.announced(data={"hunter2": 1}):
            office.delivered(delivery_id)
    assert len(receiver.requests) == 3
    assert "pending after attempt 1: answers 500" in caplog.text
    assert SECRET not in caplog.text
    assert "hunter2" not in caplog.text


def test_a_worker_delivers_what_was_announced(office: Office) -> None:
    async def work() -> None:
        @office.queue.app.task(name=DELIVER, queue=DELIVERIES)
        async def deliver(delivery_id: str) -> None:
            await webhooks.deliver(
                office.engine, office.queue, UUID(delivery_id), allowed=LOOPBACK, sealer=office.sealer
            )

        async with office.queue.app.open_async():
            await office.queue.app.run_worker_async(
                queues=[DELIVERIES], wait=False, install_signal_handlers=False, listen_notify=False
            )

    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        office.registered(f"{receiver.base_url}/other")
        ids = office.announced()
        office.run(work())
    assert sorted(request.path for request in receiver.requests) == ["/", "/other"]
    assert {office.delivery(delivery_id).status for delivery_id in ids} == {"delivered"}
    assert json.loads(receiver.requests[0].body)["type"] == EVENT
