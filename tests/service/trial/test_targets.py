"""What of a plan can be measured, what is sent to it, and what the plan expects of it."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.translation.to_plan import roofline_of
from sutler.service.trial.errors import TrialError
from sutler.service.trial.targets import Target, check_served, loads_of, targets_of
from tests.service.trial.builders import a_real_plan, changed
from tests.service.trial.fake_engine import FakeEngine, answering


def the_target(url: str = "http://127.0.0.1:1", **others: Any) -> Target:
    [target] = targets_of(a_real_plan(), {"chat-0": url}, silence_s=5.0, **others)
    return target


def test_each_workload_is_sent_alone_at_the_plans_batch_and_between() -> None:
    plan, target = a_real_plan(), the_target()
    loads = list(loads_of(target, roofline_of(plan), "served", concurrencies=(), seconds=7.0))
    batch = target.replica.max_batch
    assert batch is not None
    assert [(w.name, load.input_tokens, load.output_tokens) for w, load in loads[::3]] == [
        ("question", 400, 21),
        ("summary", 900, 11),
    ]
    first = [load.concurrency for _, load in loads[:3]]
    assert first == sorted(first)
    assert (first[0], first[2]) == (1, batch)
    assert first[1] ** 2 <= batch < (first[1] + 1) ** 2
    assert {(load.model, load.seconds) for _, load in loads} == {("served", 7.0)}
    asked = list(loads_of(target, roofline_of(plan), "served", concurrencies=(8, 2), seconds=7.0))
    assert [load.concurrency for _, load in asked] == [2, 8, 2, 8]


def test_what_is_not_routed_to_a_replica_is_not_sent() -> None:
    plan = changed(a_real_plan(), throughput_rps={"question": 3.0, "summary": 0.0})
    [target] = targets_of(plan, {"chat-0": "http://h"}, silence_s=5.0)
    loads = loads_of(target, roofline_of(plan), "served", concurrencies=(1,), seconds=1.0)
    assert [w.name for w, _ in loads] == ["question"]


def test_the_expectation_is_the_plans_own_and_has_no_cached_prompts() -> None:
    plain = the_target()
    cached_plan = a_real_plan(prefix_cache_hit_fraction=0.9)
    [cached] = targets_of(cached_plan, {"chat-0": "http://h"}, silence_s=5.0)
    found = [
        target.expected(target.model.workloads[0], roofline_of(plan), concurrency=16, each=4.0)
        for target, plan in ((plain, a_real_plan()), (cached, cached_plan))
    ]
    assert found[0].req_per_s == found[1].req_per_s
    assert found[0].low_req_per_s < found[0].req_per_s < found[0].high_req_per_s
    assert [target.is_cached(target.model.workloads[0]) for target in (plain, cached)] == [False, True]


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({}, "--at: say where replicas of the plan answer, as REPLICA=URL"),
        ({"chat-7": "http://h"}, "--at: 'chat-7': name one of chat-0"),
        ({"chat-0": "h:8000"}, "--at: 'chat-0': must be http(s)://HOST[:PORT]"),
        ({"chat-0": "http://user:hunter2@h"}, "the key is SUTLER_REPLICA_KEY"),
        ({"chat-0": "http://h:99999"}, "must be http(s)://HOST[:PORT]"),
        ({"chat-0": "http://h/?key=hunter2"}, "must be http(s)://HOST[:PORT]"),
    ],
)
def test_addresses_that_are_none_are_refused_without_their_secrets(at: dict[str, str], said: str) -> None:
    with pytest.raises(DocumentError) as raised:
        targets_of(a_real_plan(), at, silence_s=5.0)
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_what_no_calibration_is_fitted_to_is_refused() -> None:
    [stage] = a_real_plan().model_dump(mode="json")["replicas"][0]["stages"]
    cases: dict[str, dict[str, Any]] = {
        "is a prefill replica": {"role": "prefill"},
        "ranks of attention": {"data_parallel": 2},
        "has a power cap": {"stages": [{**stage, "power_cap_watts": 300.0}]},
        "has unlike stages": {"stages": [stage, {**stage, "tensor_parallel": 2}]},
    }
    for said, replica in cases.items():
        with pytest.raises(DocumentError, match=said):
            targets_of(changed(a_real_plan(), **replica), {"chat-0": "http://h"}, silence_s=5.0)


@pytest.mark.parametrize("name", ["chat", "llama-3.1-8b", "meta-llama/Llama-3.1-8B"])
def test_a_server_may_call_the_model_by_any_of_its_names(name: str) -> None:
    with answering(FakeEngine(model=name)) as engine:
        assert check_served(the_target(f"{engine.url}/v1/")) == (name, "0.12.0")


def test_another_model_is_refused_unless_it_is_said_to_be_the_one() -> None:
    with answering(FakeEngine(model="qwen")) as engine:
        with pytest.raises(
            TrialError, match="serves qwen, not chat: correct the address, or say --served-as chat-0="
        ):
            check_served(the_target(engine.url))
        assert check_served(the_target(engine.url, served_as={"chat-0": "qwen"})) == ("qwen", "0.12.0")


def test_a_server_without_room_for_the_requests_is_refused() -> None:
    with (
        answering(FakeEngine(max_model_len=512)) as engine,
        pytest.raises(TrialError, match="takes 512 tokens, and a planned request has 911"),
    ):
        check_served(the_target(engine.url))
