"""A webhook's secret is replaced while events arrive: for a while both sign, and no receiver misses one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tests.adapters.server import Received, Reply, ScriptedServer
from tests.service.webhooks.api import Api
from tests.service.webhooks.builders import SECRET, is_signed
from tests.service.webhooks.office import Office

DAY_S = 86_400


@contextmanager
def a_webhook(api: Api, count: int = 1) -> Iterator[tuple[dict[str, Any], ScriptedServer]]:
    """Its receiver takes so many events."""
    with ScriptedServer([Reply(204)] * count) as receiver:
        yield api.made(url=receiver.base_url).json(), receiver


def rotated(api: Api, webhook: dict[str, Any], **body: Any) -> Any:
    answer = api.ask("POST", f"/{webhook['id']}/rotate-secret", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def an_event(office: Office, receiver: ScriptedServer) -> Received:
    (delivery_id,) = office.announced()
    office.delivered(delivery_id)
    return receiver.requests[-1]


def test_for_a_day_both_secrets_sign_and_then_the_new_one_alone(api: Api, office: Office) -> None:
    with a_webhook(api, 3) as (webhook, receiver):
        announced_before = office.announced()
        new = rotated(api, webhook)
        assert new["secret"] != webhook["secret"]
        assert new["former_until"] is not None
        for delivery_id in announced_before:
            office.delivered(delivery_id)
        late = receiver.requests[-1]
        assert [is_signed(late, one["secret"]) for one in (webhook, new)] == [True, True]
        during = an_event(office, receiver)
        assert [is_signed(during, one["secret"]) for one in (webhook, new)] == [True, True]
        (until,) = office.rows(
            "SELECT extract(epoch FROM (former_secrets->0->>'until')::timestamptz - now()) FROM webhook"
        )
        assert DAY_S - 60 < until[0] <= DAY_S
        office.execute(
            "UPDATE webhook SET former_secrets = "
            "jsonb_set(former_secrets, '{0,until}', to_jsonb(now() - interval '1 s'))"
        )
        after = an_event(office, receiver)
        assert [is_signed(after, one["secret"]) for one in (webhook, new)] == [False, True]


def test_without_an_overlap_the_secrets_of_before_end_at_once(api: Api, office: Office) -> None:
    with a_webhook(api) as (webhook, receiver):
        second = rotated(api, webhook)
        third = rotated(api, webhook, overlap_s=0)
        assert third["former_until"] is None
        request = an_event(office, receiver)
        assert [is_signed(request, one["secret"]) for one in (webhook, second, third)] == [False, False, True]


def test_who_did_not_hear_the_answer_asks_again_and_the_receiver_misses_nothing(api: Api, office: Office) -> None:
    with a_webhook(api) as (webhook, receiver):
        rotated(api, webhook, overlap_s=3600)
        again = rotated(api, webhook, overlap_s=3600)
        request = an_event(office, receiver)
        assert [is_signed(request, one["secret"]) for one in (webhook, again)] == [True, True]


def test_so_many_secrets_sign_and_no_more(api: Api) -> None:
    with a_webhook(api) as (webhook, _):
        for _ in range(5):
            rotated(api, webhook)
        refused = api.ask("POST", f"/{webhook['id']}/rotate-secret", json={})
        assert (refused.status_code, "overlap_s of 0" in refused.json()["detail"]) == (409, True)
        rotated(api, webhook, overlap_s=0)
        rotated(api, webhook)


def test_a_secret_of_the_caller_s_own_is_taken(api: Api) -> None:
    with a_webhook(api) as (webhook, _):
        assert rotated(api, webhook, secret=SECRET)["secret"] == SECRET
        bad = api.ask("POST", f"/{webhook['id']}/rotate-secret", json={"secret": "hunter2"})
        assert (bad.status_code, "hunter2" in bad.text) == (422, False)


def test_nobody_else_shows_it_and_the_audit_log_says_who_did(api: Api, office: Office) -> None:
    with a_webhook(api) as (webhook, _):
        new = rotated(api, webhook, overlap_s=60)
        shown = api.get(f"/{webhook['id']}").text + api.get().text + str(office.audit())
        assert not [one for one in (webhook["secret"], new["secret"]) if one in shown]
        last = office.audit()[-1]
        assert last == ("local", "webhook.rotate_secret", f"webhook/{webhook['id']}", {"overlap_s": 60.0})


def test_what_cannot_be_rotated_is_refused(api: Api) -> None:
    assert api.ask("POST", f"/{uuid4()}/rotate-secret", json={}).status_code == 404
    with a_webhook(api) as (webhook, _):
        for overlap_s in (-1, 1e9, "a day"):
            answer = api.ask("POST", f"/{webhook['id']}/rotate-secret", json={"overlap_s": overlap_s})
            assert answer.status_code == 422, answer.text
