"""`/v1/deployments/{name}/observations` and `/traffic`, on the whole application."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from tests.service.builders import CHAT, changed
from tests.service.deployments.traffic.site import DOCUMENT, QUESTION, Deployed, a_window, before_now, requests_at
from tests.service.webhooks.api import Api


def by_workload(traffic: dict[str, Any], field: str) -> dict[str, float]:
    return {workload["workload"]: workload[field] for workload in traffic["workloads"]}


def test_before_the_first_observation_nothing_was_ever_seen(chat: Deployed) -> None:
    found = chat.traffic()
    assert (found["state"], found["rate_rps"], found["requests"], found["last_at"]) == ("never", 0, 0, None)
    assert found["planned_rps"] == 22
    assert by_workload(found, "planned_rps") == {"question": 20, "document": 2}
    assert by_workload(found, "input_tokens") == {"question": 500, "document": 3000}
    assert found["latencies"] == {}


def test_a_window_is_counted_and_shown(chat: Deployed) -> None:
    buckets = [{**QUESTION, "requests": 1200}, {**DOCUMENT, "requests": 60}]
    found = chat.accepted(a_window(buckets=buckets))
    assert (found["model"], found["accepted_requests"], found["duplicate"]) == ("chat", 1260, False)
    assert found["traffic"]["state"] == "live"
    assert by_workload(found["traffic"], "rate_rps") == pytest.approx({"question": 20, "document": 1}, rel=0.01)
    assert by_workload(chat.traffic(), "requests") == pytest.approx({"question": 1200, "document": 60})
    assert by_workload(chat.traffic(), "input_tokens") == pytest.approx({"question": 480, "document": 3100})
    assert by_workload(chat.traffic(), "output_tokens") == pytest.approx({"question": 210, "document": 280})


def test_single_requests_are_counted_and_shown(chat: Deployed) -> None:
    times = [before_now(1 + 0.25 * number) for number in range(400)]
    found = chat.accepted(requests_at(*times))
    assert (found["accepted_requests"], found["duplicate"]) == (400, False)
    assert found["traffic"]["state"] == "live"
    assert found["traffic"]["rate_rps"] == pytest.approx(4, rel=0.1)


def test_an_observation_has_the_deployment_looked_at(chat: Deployed) -> None:
    before = chat.touches
    chat.accepted(a_window())
    assert chat.touches == before + 1
    chat.accepted(requests_at(before_now(1)))
    assert chat.touches == before + 2


def test_a_look_at_the_traffic_changes_nothing(chat: Deployed) -> None:
    before = chat.touches
    assert chat.traffic() == chat.traffic()
    assert (chat.touches, chat.rows) == (before, 0)


def test_what_is_refused_is_neither_stored_nor_looked_at(chat: Deployed) -> None:
    before = chat.touches
    chat.remedies(a_window(model="nobody"))
    chat.remedies(a_window(observed_at=before_now(-3600)))
    assert (chat.touches, chat.rows) == (before, 0)


@pytest.mark.parametrize("source", ["", "gateway-1"])
def test_a_window_that_is_sent_twice_counts_once(chat: Deployed, source: str) -> None:
    window = a_window(source=source)
    chat.accepted(window)
    before, seen = chat.touches, chat.traffic()
    again = chat.accepted(window)
    assert (again["accepted_requests"], again["duplicate"]) == (0, True)
    assert (chat.touches, chat.rows, chat.traffic()) == (before, 1, seen)


def test_an_empty_window_that_is_sent_twice_is_a_duplicate_too(chat: Deployed) -> None:
    window = a_window(0)
    assert chat.accepted(window)["duplicate"] is False
    before = chat.touches
    assert chat.accepted(window)["duplicate"] is True
    assert (chat.touches, chat.rows) == (before, 1)


@pytest.mark.parametrize("seconds", [(33.0,), (33.0, 33.0), (33.0, 31.0), (48.0, 33.0, 21.0, 2.0)])
def test_requests_that_are_sent_twice_count_once(chat: Deployed, seconds: tuple[float, ...]) -> None:
    body = requests_at(*(before_now(second) for second in seconds))
    assert chat.accepted(body)["accepted_requests"] == len(seconds)
    again = chat.accepted(body)
    assert (again["accepted_requests"], again["duplicate"]) == (0, True)


def test_requests_that_are_sent_again_after_earlier_ones_count_once(chat: Deployed) -> None:
    """What had been told before they came is not what had been told when they come again."""
    late, early = requests_at(before_now(5), before_now(3)), requests_at(before_now(45), before_now(41))
    assert [chat.accepted(body)["accepted_requests"] for body in (late, early, late, early)] == [2, 2, 0, 0]
    assert chat.traffic()["requests"] == pytest.approx(4)


def test_the_same_from_another_source_is_not_the_same(chat: Deployed) -> None:
    window = a_window()
    assert chat.accepted({**window, "source": "a"})["duplicate"] is False
    again = chat.accepted({**window, "source": "b"})
    assert (again["duplicate"], again["accepted_requests"]) == (False, 1200)
    assert chat.traffic()["rate_rps"] == pytest.approx(40, rel=0.01)


def test_the_order_of_windows_does_not_matter(api: Api) -> None:
    now = datetime.now(UTC)
    windows = [
        a_window(100 + number, window_s=10, observed_at=(now - timedelta(seconds=10 * number)).isoformat())
        for number in range(30)
    ]
    told: list[dict[str, Any]] = []
    for name in ("orderly", "wild"):
        deployed = Deployed.of(api, name)
        for window in windows:
            deployed.accepted(window)
        told.append(deployed.traffic())
        Random(3).shuffle(windows)
    assert told[0]["requests"] == pytest.approx(told[1]["requests"], rel=0.01)
    assert told[0]["last_at"] == told[1]["last_at"]
    assert told[0]["rate_rps"] == pytest.approx(told[1]["rate_rps"], rel=0.01)


def test_a_feed_that_tells_of_no_traffic_is_live(chat: Deployed) -> None:
    found = chat.accepted(a_window(0, window_s=120))
    assert (found["traffic"]["state"], found["traffic"]["rate_rps"]) == ("live", 0)


def test_what_is_too_little_to_tell_is_thin(chat: Deployed) -> None:
    assert chat.accepted(a_window(5, window_s=1))["traffic"]["state"] == "thin"


def test_what_came_long_ago_is_silent(chat: Deployed) -> None:
    found = chat.accepted(a_window(observed_at=before_now(3600)))
    assert (found["accepted_requests"], found["traffic"]["state"]) == (1200, "silent")
    assert found["traffic"]["rate_rps"] == 0
    assert found["traffic"]["last_at"] is not None


def test_the_policys_window_is_what_it_is_judged_by(api: Api) -> None:
    deployed = Deployed.of(api, window_s=600, horizon_s=60)
    found = deployed.accepted(a_window(40_000, window_s=1200))["traffic"]
    assert (found["state"], found["window_s"]) == ("live", 600)
    assert found["requests"] == pytest.approx(20_000)


def test_thin_traffic_is_judged_by_a_longer_window(api: Api) -> None:
    little = changed(CHAT, ("models", 0, "workloads", 0, "rate_rps"), 0.2)
    deployed = Deployed.of(api, problem=changed(little, ("models", 0, "workloads", 1, "rate_rps"), 0.001))
    found = deployed.accepted(a_window(720, window_s=3600))["traffic"]
    assert (found["state"], found["window_s"]) == ("live", 960)
    assert found["rate_rps"] == pytest.approx(0.2, rel=0.01)


def test_models_are_seen_apart(api: Api) -> None:
    code = {**CHAT["models"][0], "name": "code"}
    deployed = Deployed.of(api, problem={**CHAT, "models": [*CHAT["models"], code]})
    deployed.accepted(a_window(model="code"))
    assert deployed.traffic("code")["rate_rps"] == pytest.approx(20, rel=0.01)
    assert deployed.traffic("chat")["state"] == "never"


def test_deployments_are_seen_apart(api: Api) -> None:
    one, other = Deployed.of(api, "one"), Deployed.of(api, "other")
    before = other.touches
    one.accepted(a_window())
    assert (other.traffic()["state"], other.touches) == ("never", before)


def test_a_deployment_that_is_not_there_has_no_traffic(api: Api) -> None:
    nobody = Deployed(api, "nobody")
    assert nobody.observe(a_window()).status_code == 404
    assert api.ask_at("GET", "/deployments/nobody/traffic").status_code == 404


def test_what_goes_takes_its_observations_along(chat: Deployed) -> None:
    chat.accepted(a_window())
    assert chat.api.ask_at("DELETE", "/deployments/chat").status_code in (200, 204)
    assert Deployed.of(chat.api).traffic()["state"] == "never"


def test_an_unknown_model_is_named_with_those_that_are_known(chat: Deployed) -> None:
    answer = chat.observe(a_window(model="chat-2"))
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "model")
    assert "chat-2" in error["value"]
    assert error["remedy"] == "is none of the deployment's models: chat"


def test_what_is_wrong_is_named_with_a_value_and_a_remedy(chat: Deployed) -> None:
    answer = chat.observe(a_window(buckets=[{**QUESTION, "requests": -1}], window_s=3601))
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert answer.json()["errors"] == [
        {"field": "window_s", "value": "3601", "remedy": "must be at most 3600"},
        {"field": "buckets[0].requests", "value": "-1", "remedy": "must be at least 0"},
    ]


def test_a_time_ahead_of_the_clock_is_refused_with_both(chat: Deployed) -> None:
    ahead = before_now(-90)
    answer = chat.observe(a_window(observed_at=ahead))
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "observed_at")
    assert ahead[:19] in error["value"]
    assert "set the clock of the sender" in error["remedy"]
    assert list(chat.remedies(requests_at(before_now(1), before_now(-90)))) == ["requests[].at"]


def test_a_clock_that_is_a_little_ahead_is_forgiven(chat: Deployed) -> None:
    found = chat.accepted(a_window(2400, window_s=120, observed_at=before_now(-30)))
    assert (found["accepted_requests"], found["traffic"]["state"]) == (2400, "live")
    assert found["traffic"]["rate_rps"] == pytest.approx(20, rel=0.01)


def test_what_is_older_than_a_day_is_refused(chat: Deployed) -> None:
    assert "more than a day ago" in chat.remedies(a_window(observed_at=before_now(86_500)))["observed_at"]
    assert "more than a day ago" in chat.remedies(requests_at(before_now(86_500)))["requests[].at"]
    assert chat.accepted(a_window(observed_at=before_now(86_000)))["accepted_requests"] == 1200


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"{", b"\xff", b'{"model": NaN}', b"null"])
def test_a_body_that_is_no_observation_is_refused(chat: Deployed, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = chat.api.ask_at("POST", "/deployments/chat/observations", content=content, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.slow
def test_many_requests_may_be_sent_at_once_and_not_more(chat: Deployed) -> None:
    times = [before_now(1 + 0.002 * number) for number in range(20_000)]
    assert chat.accepted(requests_at(*times))["accepted_requests"] == 20_000
    assert "at most 50000" in chat.remedies(requests_at(*[times[0]] * 50_001))["requests"]
