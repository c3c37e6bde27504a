"""`/v1/webhooks` as callers see it."""

import asyncio
from typing import Any

import pytest

from sutler.service.auth.service import create_key
from sutler.service.db.asynchronous import begun
from sutler.service.web.caller import CLI, Scope
from sutler.service.web.errors import ConflictError
from sutler.service.webhooks.events import EVENTS
from sutler.service.webhooks.service import MOST_WEBHOOKS
from sutler.service.webhooks.signatures import key_of
from tests.adapters.server import Reply, ScriptedServer
from tests.service.webhooks.api import A_WEBHOOK, Api
from tests.service.webhooks.builders import SECRET, is_signed
from tests.service.webhooks.office import Office

NOBODY = "00000000-0000-0000-0000-000000000000"


def problems(answer: Any) -> dict[str, str]:
    """Remedies by field."""
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return {error["field"]: error["remedy"] for error in answer.json()["errors"]}


def test_a_webhook_is_made_and_shows_its_secret_once(api: Api) -> None:
    answer = api.made(description="on-call")
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/webhooks/{made['id']}"
    assert len(key_of(made.pop("secret"))) == 32
    assert made.items() >= {"url": "https://receiver.example/hook", "description": "on-call"}.items()
    assert (made["events"], made["created_by"]) == (["plan.issued"], "local")
    assert api.get(f"/{made['id']}").json() == made
    assert api.get().json() == {"items": [made], "next": None}


def test_a_secret_of_the_callers_own_is_taken(api: Api) -> None:
    assert api.made(secret=SECRET).json()["secret"] == SECRET


@pytest.mark.parametrize(
    "secret", ["hunter2", "whsec_aHVudGVyMg==", "whsec_hunter2hunter2hunter2hunter2!", 1234567, ["hunter2"]]
)
def test_a_bad_secret_is_refused_and_not_repeated(api: Api, secret: object) -> None:
    answer = api.made(secret=secret)
    assert "24 to 64" in problems(answer)["secret"]
    assert "hunter2" not in answer.text
    assert "1234567" not in answer.text


def test_an_unknown_event_is_refused_with_those_that_are_known(api: Api) -> None:
    remedy = problems(api.made(events=["plan.issued", "plan.isued"]))["events[1]"]
    assert all(event in remedy for event in EVENTS)


@pytest.mark.parametrize("events", [[], "plan.issued", None, {}])
def test_there_must_be_a_list_of_events(api: Api, events: object) -> None:
    assert "events" in problems(api.made(events=events))


def test_an_event_named_twice_counts_once(api: Api) -> None:
    assert api.made(events=["plan.failed", "plan.failed", "plan.issued"]).json()["events"] == [
        "plan.failed",
        "plan.issued",
    ]


PRIVATE_HOSTS = ["10.0.0.1", "0xa9fea9fe", "192.168.257", "0", "[::1]", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]"]


@pytest.mark.parametrize("host", PRIVATE_HOSTS)
def test_hosts_that_are_not_public_are_refused(api: Api, host: str) -> None:
    assert "SUTLER_OUTGOING_NETWORKS" in problems(api.made(url=f"http://{host}/"))["url"]


def test_an_allowed_network_may_be_named(api: Api) -> None:
    assert api.made(url="http://127.0.0.1:9000/hook").status_code == 201


@pytest.mark.parametrize(
    "url", ["https://user:hunter2@example.org/", "http://10.0.0.1/hunter2", "https://x.org/hunter2#"]
)
def test_a_refused_url_is_not_repeated(api: Api, url: str) -> None:
    answer = api.made(url=url)
    assert "url" in problems(answer)
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    "body", [{"description": "x" * 201}, {"description": "a\x1b[31m"}, {"url": 5}, {"url": ""}, {"colour": "red"}]
)
def test_wrong_fields_are_named(api: Api, body: dict[str, Any]) -> None:
    assert next(iter(body)) in problems(api.made(**body))


def test_yaml_is_taken_too(api: Api) -> None:
    content = "url: https://receiver.example/\nevents: [plan.failed]\n"
    answer = api.ask("POST", "", content=content, headers={"Content-Type": "application/yaml"})
    assert (answer.status_code, answer.json()["events"]) == (201, ["plan.failed"])


def test_a_deleted_webhook_is_gone(api: Api) -> None:
    path = f"/{api.made().json()['id']}"
    answer = api.ask("DELETE", path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert [api.ask(method, path).status_code for method in ("GET", "DELETE")] == [404, 404]
    assert api.get().json()["items"] == []


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("DELETE", ""), ("GET", "/deliveries"), ("POST", "/test")])
def test_what_does_not_exist_is_not_found(api: Api, method: str, rest: str) -> None:
    answer = api.ask(method, f"/{NOBODY}{rest}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:sutler:problem:not-found")


def test_lists_come_in_pages_the_newest_first(api: Api) -> None:
    ids = [api.made(description=f"no {number}").json()["id"] for number in range(5)]
    found, cursor = [], None
    while True:
        page = api.get(limit=2, **({} if cursor is None else {"cursor": cursor})).json()
        assert len(page["items"]) <= 2
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == ids[::-1]


@pytest.mark.parametrize("cursor", ["x", "W10", "WyJhIiwiYiJd", "WyIyMDI2LTAxLTAxIiwiYiJd"])
def test_a_made_up_cursor_is_refused(api: Api, cursor: str) -> None:
    made = api.made().json()["id"]
    assert "cursor" in problems(api.get(cursor=cursor))
    assert "cursor" in problems(api.get(f"/{made}/deliveries", cursor=cursor))


def test_a_test_event_is_sent_whatever_the_webhook_wants(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(204)]) as receiver:
        made = api.made(url=receiver.base_url, events=["plan.failed"]).json()
        answer = api.ask("POST", f"/{made['id']}/test")
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/v1/webhooks/{made['id']}/deliveries"
        assert (answer.json()["event"], answer.json()["status"]) == ("webhook.test", "pending")
        (job,) = office.jobs()
        office.delivered(job.delivery_id)
    (request,) = receiver.requests
    assert is_signed(request, made["secret"])
    assert (request.data["type"], request.data["data"]) == ("webhook.test", {"webhook": {"id": made["id"]}})
    (delivery,) = api.get(f"/{made['id']}/deliveries").json()["items"]
    assert (delivery["id"], delivery["status"], delivery["attempts"]) == (answer.json()["id"], "delivered", 1)


def test_deliveries_say_how_it_went(api: Api, office: Office) -> None:
    with ScriptedServer([Reply(500)]) as receiver:
        made = api.made(url=receiver.base_url).json()
        ids = [*office.announced(), *office.announced(), *office.announced()]
        office.delivered(ids[0])
    first = api.get(f"/{made['id']}/deliveries", limit=2).json()
    rest = api.get(f"/{made['id']}/deliveries", limit=2, cursor=first["next"]).json()
    assert [item["id"] for item in first["items"] + rest["items"]] == [str(one) for one in reversed(ids)]
    assert rest["next"] is None
    oldest = rest["items"][0]
    assert (oldest["status"], oldest["attempts"], oldest["last_status_code"]) == ("pending", 1, 500)
    assert oldest["last_error"] == "answers 500"
    assert SECRET not in str(first) + str(rest)


def test_what_is_changed_is_audited_without_secrets_and_urls(api: Api, office: Office) -> None:
    made = api.made(url="https://receiver.example/hunter2").json()
    api.ask("POST", f"/{made['id']}/test")
    api.ask("DELETE", f"/{made['id']}")
    audit = office.audit()
    actions = ["webhook.create", "webhook.test", "webhook.delete"]
    assert [row[:3] for row in audit] == [("local", action, f"webhook/{made['id']}") for action in actions]
    assert made["secret"] not in str(audit)
    assert "hunter2" not in str(audit)


def test_a_refused_webhook_leaves_no_trace(api: Api, office: Office) -> None:
    api.made(url="http://10.0.0.1/")
    assert (office.webhooks(), office.audit()) == ([], [])


def test_there_may_be_so_many_webhooks_and_no_more(api: Api, office: Office) -> None:
    office.fill_up(MOST_WEBHOOKS - 1)
    assert api.made().status_code == 201
    answer = api.made()
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")
    assert "delete one" in answer.json()["detail"]
    assert len(office.webhooks()) == MOST_WEBHOOKS


def test_two_requests_at_once_share_the_last_place(office: Office) -> None:
    office.fill_up(MOST_WEBHOOKS - 1)

    async def race() -> list[object]:
        async with begun(office.engine) as connection:
            await office.register(connection)
            other = asyncio.create_task(register_another())
            await asyncio.sleep(0.1)
        return list(await asyncio.gather(other, return_exceptions=True))

    async def register_another() -> None:
        async with begun(office.engine) as connection:
            await office.register(connection)

    (outcome,) = office.run(race())
    assert isinstance(outcome, ConflictError)
    assert len(office.webhooks()) == MOST_WEBHOOKS


def a_key(office: Office, scope: Scope) -> dict[str, str]:
    """The header that shows a new key."""
    made = office.changed(lambda c: create_key(c, name=scope, scope=scope, lifetime=None, caller=CLI))
    return {"Authorization": f"Bearer {made.made.text}"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ""),
        ("GET", ""),
        ("GET", f"/{NOBODY}"),
        ("DELETE", f"/{NOBODY}"),
        ("GET", f"/{NOBODY}/deliveries"),
        ("POST", f"/{NOBODY}/test"),
    ],
)
def test_only_administrators_may_see_and_change_webhooks(api: Api, office: Office, method: str, path: str) -> None:
    scopes: tuple[Scope, ...] = ("read", "plan", "admin")
    answers = [api.ask(method, path, json=A_WEBHOOK, headers=a_key(office, scope)) for scope in scopes]
    assert [answer.status_code for answer in answers[:2]] == [403, 403]
    assert answers[2].status_code in {200, 201, 404}
    assert len(office.webhooks()) == (1 if (method, path) == ("POST", "") else 0)


def test_changes_count_against_the_keys_limit(api: Api, office: Office) -> None:
    headers = a_key(office, "admin")
    made = api.ask("POST", "", json=A_WEBHOOK, headers=headers).json()
    api.ask("POST", f"/{made['id']}/test", headers=headers)
    api.ask("DELETE", f"/{made['id']}", headers=headers)
    assert office.changes_counted() == 3
