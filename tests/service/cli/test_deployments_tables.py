"""What people read of diffs, traffic and feeds, from documents alone."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console, RenderableType

from sutler.service.cli.views.diff import diff_view, revision_line
from sutler.service.cli.views.plan import group_replicas
from sutler.service.cli.views.traffic import accepted_words, feeds_view, thin_words
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.traffic.feed_schema import FailedUrlResource, FeedResource, FeedsResource
from sutler.service.deployments.traffic.schemas import AcceptedResource, ModelTrafficResource, TrafficResource
from sutler.service.documents.plan import PlanDocument
from tests.service.deployments.diff.fleets import AT, On, a_fleet, a_machine, a_replica, one_replica_each


def shown(parts: Iterable[RenderableType]) -> str:
    console = Console(width=100, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


def held(count: int) -> tuple[HoldingDocument, ...]:
    machine: dict[str, Any] = {
        "provider": "vastai",
        "offer_id": "123",
        "gpu": "h100-sxm",
        "gpus": 4,
        "price_usd_per_hour": 9.05,
    }
    return (HoldingDocument(**machine, count=count),) if count else ()


def test_a_machine_that_is_started_anew_is_not_among_those_to_stop() -> None:
    diff = difference(one_replica_each(2), one_replica_each(2, revision=2), reason="lost", held=held(1))
    text = shown(diff_view(diff))
    assert "1. Start and check" in text
    assert "3. Stop" not in text
    assert "nothing to do" not in text
    assert "stop" not in revision_line("chat", diff, AT)


def test_what_is_gone_and_not_wanted_again_is_nothing_to_stop() -> None:
    after = a_fleet(a_machine("other"), revision=2)
    text = shown(diff_view(difference(one_replica_each(2), after, reason="other", held=held(1))))
    stop, gone = text.split("3. Stop")[1].split("Gone, and not needed any more: nothing to do")
    assert "123" in stop
    assert "123" in gone


def test_only_those_beyond_what_is_started_anew_are_gone() -> None:
    diff = difference(one_replica_each(3), one_replica_each(1, revision=2), reason="fewer", held=held(0))
    gone = shown(diff_view(diff)).split("nothing to do")[1]
    [cells] = [line.split() for line in gone.splitlines() if "123" in line]
    assert cells[:8] == ["vastai", "123", "4", "×", "h100-sxm", "on", "demand", "2"]
    assert cells[8] == "18.10"


def restarted(count: int) -> PlanDocument:
    plan = one_replica_each(count, revision=2)
    other = {"model": "meta-llama/Meta-Llama-3-70B", "max_num_seqs": 100}
    replicas = tuple(replica.model_copy(update={"engine_args": other}) for replica in plan.replicas)
    return plan.model_copy(update={"replicas": replicas})


def test_restarts_are_named_in_turn_with_what_is_carried_meanwhile() -> None:
    text = shown(diff_view(difference(one_replica_each(2), restarted(2), reason="other settings")))
    assert "At worst 51 % of the new plan's load is carried: during the restart of chat-0." in text
    first = "start anew: chat-0; 51 % of the load is carried meanwhile"
    assert text.index(first) < text.index("then start anew: chat-1; 51 %")


def test_a_change_that_leaves_everything_carried_says_so() -> None:
    text = shown(diff_view(difference(one_replica_each(3), one_replica_each(2, revision=2), reason="fewer")))
    assert "All of the new plan's load is carried at every step." in text


def test_a_line_of_the_log_begins_with_the_time_and_the_name() -> None:
    diff = difference(None, a_fleet(), reason="the first plan")
    line = revision_line("chat", diff, AT)
    assert line == ("2026-11-20T12:00:20Z chat revision 1: 9.050 $/h (+9.050), start 1, re-route 1; the first plan")


@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (["chat-0"], "chat-0"),
        (["chat-0", "chat-1", "chat-2"], "chat-0–2"),
        (["chat-10", "chat-9", "chat-2"], "chat-2, 9–10"),
        (["chat-0", "code-1"], "chat-0, code-1"),
        (["chat-0", "chat-2", "chat-4", "chat-6", "chat-7"], "chat-0, 2, 4, +2"),
        (["front", "back"], "back, front"),
    ],
)
def test_groups_of_replicas_are_called_by_their_ids(ids: list[str], name: str) -> None:
    [group] = group_replicas((a_replica(name, On(machine=i)) for i, name in enumerate(ids)), by_id=True)
    assert group.name == name


def a_model(**others: Any) -> ModelTrafficResource:
    given: dict[str, Any] = {
        "model": "chat",
        "state": "live",
        "window_s": 120.0,
        "requests": 2640.0,
        "rate_rps": 22.0,
        "planned_rps": 22.0,
        "last_at": AT,
        "workloads": [],
    }
    return ModelTrafficResource(**{**given, **others})


def accepted(requests: float, *, duplicate: bool = False, **others: Any) -> AcceptedResource:
    return AcceptedResource(model="chat", accepted_requests=requests, duplicate=duplicate, traffic=a_model(**others))


def test_reports_are_added_up_and_those_sent_before_are_counted() -> None:
    first, *rest = accepted_words("chat", [accepted(5000.0), accepted(0.0, duplicate=True), accepted(250.0)])
    assert first == "chat: 5,250 requests counted (3 reports, 1 of them sent before)"
    assert rest == ["chat: 22.00 requests/s over 2 minutes (planned 22.00)"]


@pytest.mark.parametrize(
    ("requests", "seen"),
    [(12.0, "12 of 100 requests so far"), (800.0, "800 requests so far, of less than half of the window of 120 s")],
)
def test_thin_traffic_says_how_much_was_seen(requests: float, seen: str) -> None:
    found = TrafficResource(deployment="chat", models=[a_model(state="thin", requests=requests)])
    assert list(thin_words(found, window_s=120.0)) == [
        f"its traffic is too thin to tell whether it has changed: {seen}"
    ]


def test_of_several_models_the_thin_one_is_named() -> None:
    found = TrafficResource(deployment="chat", models=[a_model(), a_model(model="code", state="thin", requests=3.0)])
    [line] = thin_words(found, window_s=120.0)
    assert line.startswith("code is too thin")


def test_what_was_thin_and_is_not_any_more_is_said_of_the_last_look() -> None:
    found = TrafficResource(deployment="chat", models=[a_model()])
    assert list(thin_words(found, window_s=120.0)) == ["its traffic was too thin to tell whether it has changed"]


def a_feed(**others: Any) -> FeedResource:
    given: dict[str, Any] = {
        "model": "chat",
        "kind": "vllm",
        "urls": [f"http://10.0.0.{i}:8000/metrics" for i in range(1, 6)],
        "selector": {},
        "every_s": 15.0,
        "read_at": datetime(2026, 11, 20, 12, tzinfo=UTC),
        "next_at": None,
        "error": None,
        "failures": 0,
        "partial": [],
    }
    return FeedResource(**{**given, **others})


def test_a_feed_that_is_read_says_when_and_from_how_many() -> None:
    text = shown(feeds_view(FeedsResource(deployment="chat", feeds=[a_feed()])))
    assert "2026-11-20T12:00:00Z   ok" in text
    assert "and 2 more" in text
    assert "Could not be read" not in text


def test_engines_that_fail_are_named_with_their_errors() -> None:
    failed = FailedUrlResource(url="http://10.0.0.2:8000/metrics", error="HTTP 503")
    text = shown(feeds_view(FeedsResource(deployment="chat", feeds=[a_feed(partial=[failed])])))
    assert "1 of 5 fail" in text
    assert "- http://10.0.0.2:8000/metrics: HTTP 503" in text


def test_a_feed_that_fails_says_why_how_often_and_when_it_is_tried_again() -> None:
    again = datetime(2026, 11, 20, 12, 5, tzinfo=UTC)
    feed = a_feed(error="no connection", failures=3, next_at=again, selector={"model_name": "chat"})
    text = shown(feeds_view(FeedsResource(deployment="chat", feeds=[feed])))
    assert "fails, 3 times" in text
    assert '{model_name="chat"}' in text
    assert "and the others: no connection; tried again at 2026-11-20T12:05:00Z" in text
