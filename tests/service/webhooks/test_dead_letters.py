"""`/v1/deliveries` as callers see it: what was given up, what was in it, and sending it again."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.adapters.server import Reply, ScriptedServer
from tests.service.webhooks.api import Api
from tests.service.webhooks.builders import SECRET, is_signed
from tests.service.webhooks.office import DATA, EVENT, Office
from tests.service.webhooks.test_endpoints import NOBODY, a_key, problems


def deliveries(api: Api, path: str = "/deliveries", **params: Any) -> dict[str, Any]:
    answer = api.ask_at("GET", path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(page: dict[str, Any]) -> list[UUID]:
    return [UUID(item["id"]) for item in page["items"]]


def one_of_each(office: Office) -> dict[str, UUID]:
    """By status."""
    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        delivered, failed, pending = (office.announced()[0] for _ in range(3))
        office.delivered(delivered)
        office.given_up(failed)
    return {"delivered": delivered, "failed": failed, "pending": pending}


@pytest.mark.parametrize("status", ["pending", "delivered", "failed"])
def test_deliveries_are_listed_by_status(api: Api, office: Office, status: str) -> None:
    made = one_of_each(office)
    (webhook,) = office.webhooks()
    for path in ("/deliveries", f"/webhooks/{webhook.id}/deliveries"):
        found = deliveries(api, path, status=status)
        assert ids(found) == [made[status]]
        assert (found["items"][0]["status"], found["items"][0]["webhook_id"]) == (status, str(webhook.id))
        assert len(ids(deliveries(api, path))) == 3


def test_an_unknown_status_is_refused_with_those_that_are_known(api: Api) -> None:
    made = api.made().json()["id"]
    for path in ("/deliveries", f"/webhooks/{made}/deliveries"):
        remedy = problems(api.ask_at("GET", path, params={"status": "dead"}))["status"]
        assert all(status in remedy for status in ("pending", "delivered", "failed"))


def test_the_failed_ones_of_all_webhooks_come_in_pages_the_newest_first(api: Api, office: Office) -> None:
    office.registered()
    office.registered()
    made = [office.given_up(one) for _ in range(3) for one in office.announced()]
    kept = office.announced()
    found, cursor = [], None
    while True:
        page = deliveries(api, status="failed", limit=4, **({} if cursor is None else {"cursor": cursor}))
        found += ids(page)
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(found) == sorted(made)
    assert found[:2] == sorted(made[-2:], reverse=True)
    assert not set(kept) & set(found)
    assert "cursor" in problems(api.ask_at("GET", "/deliveries", params={"cursor": "W10"}))


def test_a_delivery_shows_the_body_that_is_sent_and_no_secret(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(500)]) as receiver:
        office.registered(receiver.base_url)
        (delivery_id,) = office.announced()
        assert deliveries(api, f"/deliveries/{delivery_id}")["next_attempt_at"] is None
        office.delivered(delivery_id)
    found = deliveries(api, f"/deliveries/{delivery_id}")
    assert found["body"].encode() == receiver.requests[0].body
    assert json.loads(found["body"])["data"] == DATA
    (job,) = office.jobs()
    assert job.scheduled_at is not None
    assert found["next_attempt_at"].startswith(f"{job.scheduled_at:%Y-%m-%dT%H:%M:%S}")
    assert SECRET not in str(found)
    assert "secret" not in found


def test_what_has_ended_has_no_next_attempt(api: Api, office: Office) -> None:
    made = one_of_each(office)
    for status in ("delivered", "failed"):
        assert deliveries(api, f"/deliveries/{made[status]}")["next_attempt_at"] is None


def test_a_dead_letter_is_replayed_and_arrives_signed(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(200)]) as receiver:
        office.registered(receiver.base_url)
        delivery_id = office.given_up(office.announced()[0])
        answer = api.ask_at("POST", f"/deliveries/{delivery_id}/replay")
        assert (answer.status_code, answer.json()["status"]) == (202, "pending")
        assert answer.headers["location"] == f"/v1/deliveries/{delivery_id}"
        office.delivered(delivery_id)
    (request,) = receiver.requests
    assert is_signed(request)
    assert request.headers["webhook-id"] == str(delivery_id)
    assert deliveries(api, status="failed")["items"] == []


def test_a_pending_delivery_is_a_conflict(api: Api, office: Office) -> None:
    office.registered()
    (delivery_id,) = office.announced()
    answer = api.ask_at("POST", f"/deliveries/{delivery_id}/replay")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")
    assert "as soon as a worker is free" in answer.json()["detail"]
    assert len(office.jobs()) == 1


def test_the_failed_ones_of_a_webhook_are_replayed(api: Api, office: Office) -> None:
    webhook = office.registered()
    delivery_id = office.given_up(office.announced()[0])
    path = f"/{webhook.id}/replay"
    nothing = api.ask("POST", path, json={"since": "2200-01-01T00:00:00Z", "events": ["webhook.test"]})
    assert (nothing.status_code, nothing.json()) == (202, {"replayed": 0, "remaining": 0})
    answer = api.ask("POST", path, json={"since": "2020-01-01T00:00:00+02:00", "events": [EVENT]})
    assert (answer.status_code, answer.json()) == (202, {"replayed": 1, "remaining": 0})
    assert answer.headers["location"] == f"/v1/webhooks/{webhook.id}/deliveries"
    assert [job.delivery_id for job in office.jobs()] == [delivery_id]
    assert api.ask("POST", path, json={}).json() == {"replayed": 0, "remaining": 0}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"since": 1_700_000_000}, "since"),
        ({"since": "2026-11-20T12:00:00"}, "since"),
        ({"since": "yesterday"}, "since"),
        ({"events": []}, "events"),
        ({"events": ["plan.isued"]}, "events[0]"),
        ({"until": "2026-11-20T12:00:00Z"}, "until"),
    ],
)
def test_wrong_choices_are_named(api: Api, office: Office, body: dict[str, Any], field: str) -> None:
    webhook = office.registered()
    office.given_up(office.announced()[0])
    assert field in problems(api.ask("POST", f"/{webhook.id}/replay", json=body))
    assert office.jobs() == []


def test_replays_are_audited(api: Api, office: Office) -> None:
    webhook = office.registered("https://receiver.example/hunter2")
    delivery_id = office.given_up(office.announced()[0])
    api.ask_at("POST", f"/deliveries/{delivery_id}/replay")
    api.ask_at("POST", f"/deliveries/{delivery_id}/replay")
    api.ask("POST", f"/{webhook.id}/replay", json={"since": "2026-01-01T00:00:00Z", "events": [EVENT]})
    detail = {"replayed": 0, "since": "2026-01-01T00:00:00+00:00", "events": [EVENT]}
    assert office.audit()[1:] == [
        ("local", "delivery.replay", f"delivery/{delivery_id}", {}),
        ("local", "webhook.replay", f"webhook/{webhook.id}", detail),
    ]
    assert "hunter2" not in str(office.audit())


CALLS = [
    ("GET", "/deliveries"),
    ("GET", f"/deliveries/{NOBODY}"),
    ("POST", f"/deliveries/{NOBODY}/replay"),
    ("POST", f"/webhooks/{NOBODY}/replay"),
]


@pytest.mark.parametrize(("method", "path"), CALLS[1:])
def test_what_does_not_exist_is_not_found(api: Api, method: str, path: str) -> None:
    answer = api.ask_at(method, path, **({"json": {}} if path.startswith("/webhooks") else {}))
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found")


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_only_administrators_may_see_and_replay_deliveries(api: Api, office: Office, method: str, path: str) -> None:
    answers = [
        api.ask_at(method, path, json={}, headers=a_key(office, "read")),
        api.ask_at(method, path, json={}, headers=a_key(office, "plan")),
        api.ask_at(method, path, json={}, headers=a_key(office, "admin")),
    ]
    assert [answer.status_code for answer in answers[:2]] == [403, 403]
    assert answers[2].status_code in {200, 404}


def test_replays_count_against_the_keys_limit(api: Api, office: Office) -> None:
    webhook = office.registered()
    delivery_id = office.given_up(office.announced()[0])
    headers = a_key(office, "admin")
    api.ask_at("POST", f"/deliveries/{delivery_id}/replay", headers=headers)
    api.ask("POST", f"/{webhook.id}/replay", json={}, headers=headers)
    assert office.changes_counted() == 2
