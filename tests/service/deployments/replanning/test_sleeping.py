"""Without requests no machines are rented for models that may sleep; they are there again when they are needed."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from sutler.service.deployments.replanning.sleeping import without
from sutler.service.deployments.replanning.verdict import Verdict
from sutler.service.deployments.schemas import NewDeploymentDocument
from sutler.service.deployments.terraform import state_document
from sutler.service.deployments.traffic.service import known
from sutler.service.deployments.traffic.window import Observation
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.export import exported
from sutler.service.export.result import NothingToRunError
from tests.service.deployments.replanning.builders import SIZES, START, a_problem, an_offer
from tests.service.deployments.replanning.worlds import World, a_world, machines

AFTER_S = 600.0
TICK_S = 60.0
BOTH = {"chat": 22.0, "code": 10.0}


def two_models() -> ProblemDocument:
    """Chat as usual, and code that takes 10 requests/s of what an H100 does 20 of."""
    chat = a_problem().model_dump(mode="json", by_alias=True, exclude_unset=True)
    size = dict(zip(("input_tokens", "output_tokens"), SIZES["question"], strict=True))
    code = {"name": "code", "model": "llama-3.1-8b", "workloads": [{"name": "edit", "rate_rps": 10.0, **size}]}
    row = {"model": "code", "stages": [{"gpu": "h100-sxm", "tensor_parallel": 1}], "rps": {"edit": 20.0}}
    table = [*chat["throughput"]["table"], row]
    models = [*chat["models"], code]
    return validate(ProblemDocument, {**chat, "models": models, "throughput": {"only": True, "table": table}})


class Sleepy:
    """A world whose gateway tells every minute; `hears` None: of nothing."""

    def __init__(self, problem: ProblemDocument | None = None, **policy: Any) -> None:
        sleep = {
            "sleep": {"after_s": AFTER_S},
            "startup_s": 120.0,
            "download_gb_per_s": 0.5,
            "shrink_after_s": 1800.0,
        }
        self.world: World = a_world(an_offer(), problem=problem, policy={**sleep, **policy})
        self.told: list[Observation] = []
        self.world.traffic = self.traffic()

    def traffic(self) -> Mapping[str, Any]:
        return known(self.world.planned.models, self.told, self.world.policy, now=self.world.now)

    def hears(self, rps: Mapping[str, float], *, source: str = "gateway") -> None:
        """Of the last minute."""
        for model, rate in rps.items():
            requests = rate * TICK_S
            buckets = ((*SIZES["question"], requests),) if requests else ()
            begin = self.world.now - timedelta(seconds=TICK_S)
            self.told.append(Observation(model, source, begin, self.world.now, requests, buckets))

    def lives(self, seconds: float, hears: Mapping[str, float] | None = None) -> Verdict:
        for _ in range(round(seconds / TICK_S)):
            self.world.passes(TICK_S)
            self.world.poll()
            self.hears(hears or {})
            self.world.traffic = self.traffic()
            verdict = self.world.look()
        return verdict

    @property
    def asleep(self) -> list[str]:
        return [one.model for one in self.world.plan.sleeping]


def fallen_asleep(**policy: Any) -> Sleepy:
    sleepy = Sleepy(**policy)
    sleepy.lives(300.0, {"chat": 22.0})
    sleepy.lives(AFTER_S + 2 * TICK_S, {"chat": 0.0})
    assert sleepy.asleep == ["chat"]
    return sleepy


def test_a_deployment_without_requests_rents_nothing_and_says_so() -> None:
    sleepy = fallen_asleep()
    plan = sleepy.world.plan
    assert (plan.status, plan.rentals, plan.replicas, plan.cost_usd_per_hour) == ("optimal", (), (), 0.0)
    assert "chat may sleep: no requests for" in " ".join(plan.notes)
    assert "no machine at all gains 4.00 $/h" in " ".join(plan.notes)
    assert sleepy.lives(3600.0, {"chat": 0.0}).state.detail == "all models sleep"
    assert len(sleepy.world.revisions) == 1
    assert sleepy.world.alerts == []


def test_what_is_kept_beside_the_plan_is_a_problem_that_can_be_read_again() -> None:
    sleepy = fallen_asleep()
    stored = sleepy.world.planned.model_dump(mode="json", by_alias=True, exclude_unset=True)
    read = validate(ProblemDocument, stored)
    assert [model.name for model in read.models] == ["chat"]
    assert without(read, ["chat"]).models == ()


def test_a_request_wakes_it_at_once_to_what_is_stated_within_the_cool_down() -> None:
    sleepy = fallen_asleep(cooldown_s=86_400.0)
    verdict = sleepy.lives(TICK_S, {"chat": 0.2})
    assert sleepy.asleep == []
    assert machines(sleepy.world) == {"acme/large": 2}
    assert verdict.decision is not None
    assert verdict.decision.reason.startswith("chat wakes: there are requests again; a fleet that serves")
    sleepy.lives(1700.0, {"chat": 0.2})
    assert machines(sleepy.world) == {"acme/large": 2}  # what came while it slept is no lull


def test_it_wakes_when_it_is_asked_to_and_sleeps_again_if_nothing_comes() -> None:
    sleepy = fallen_asleep()
    sleepy.world.woken["chat"] = sleepy.world.now
    assert sleepy.lives(TICK_S, {"chat": 0.0}).decision is not None
    assert machines(sleepy.world) == {"acme/large": 2}
    sleepy.lives(AFTER_S - 2 * TICK_S, {"chat": 0.0})
    assert sleepy.asleep == []
    sleepy.lives(3 * TICK_S, {"chat": 0.0})
    assert sleepy.asleep == ["chat"]


def test_whoever_asks_for_a_plan_wakes_all() -> None:
    sleepy = fallen_asleep()
    sleepy.world.look(is_asked=True)
    assert machines(sleepy.world) == {"acme/large": 2}


def test_an_event_of_the_calendar_wakes_it_in_time() -> None:
    begins = START + timedelta(hours=2)
    event = {"name": "launch", "starts": f"{begins:%M %H} * * *", "lasts_s": 3600.0, "times": 2.0}
    sleepy = fallen_asleep(calendar=[event])
    lead_s = sleepy.world.facts().ahead.total_seconds()
    before = (begins - sleepy.world.now).total_seconds() - lead_s - 2 * TICK_S
    assert sleepy.lives(before, {"chat": 0.0}).look_at <= begins - timedelta(seconds=lead_s)
    assert machines(sleepy.world) == {}
    sleepy.lives(lead_s, {"chat": 0.0})
    assert sum(machines(sleepy.world).values()) >= 4
    sleepy.lives(3600.0 + AFTER_S, {"chat": 0.0})
    assert machines(sleepy.world) == {}


def test_only_what_reports_say_is_no_request() -> None:
    """Nobody ever told anything; reports stopped; a second source stopped while the first tells of nothing."""
    silent = Sleepy()
    silent.lives(2 * AFTER_S)
    ended = Sleepy()
    ended.lives(300.0, {"chat": 0.0})
    ended.lives(2 * AFTER_S)
    half = Sleepy()
    for number in range(15):
        if number < 8:
            half.hears({"chat": 0.0}, source="engine")
        half.lives(TICK_S, {"chat": 0.0})
    with_gap = Sleepy()
    with_gap.lives(300.0, {"chat": 0.0})
    with_gap.lives(AFTER_S)
    with_gap.lives(300.0, {"chat": 0.0})
    for sleepy in (silent, ended, half, with_gap):
        assert sleepy.asleep == []
        assert machines(sleepy.world) == {"acme/large": 2}


def test_silence_wakes_nothing_and_is_no_alarm() -> None:
    """Engines that are not there report nothing."""
    sleepy = fallen_asleep()
    sleepy.lives(7200.0)
    assert sleepy.asleep == ["chat"]
    assert sleepy.world.alerts == []


def test_of_two_models_one_sleeps_and_the_other_is_served() -> None:
    sleepy = Sleepy(two_models(), refine_s=86_400.0)
    sleepy.lives(300.0, BOTH)
    before = sum(machines(sleepy.world).values())
    sleepy.lives(AFTER_S + 6 * TICK_S, {"chat": 22.0, "code": 0.0})
    assert sleepy.asleep == ["code"]
    assert {replica.model for replica in sleepy.world.plan.replicas} == {"chat"}
    assert sum(machines(sleepy.world).values()) == before - 1
    kept = {replica.id for replica in sleepy.world.plan.replicas}
    sleepy.lives(TICK_S, {"chat": 22.0, "code": 1.0})
    assert sleepy.asleep == []
    assert kept <= {replica.id for replica in sleepy.world.plan.replicas}
    assert sum(machines(sleepy.world).values()) == before


def test_a_model_that_wakes_where_nothing_is_for_rent_takes_nothing_from_the_others() -> None:
    sleepy = Sleepy(two_models())
    sleepy.lives(3900.0, {"chat": 30.0, "code": 10.0})
    sleepy.lives(AFTER_S + 6 * TICK_S, {"chat": 30.0, "code": 0.0})
    world = sleepy.world
    world.poll(an_offer("tiny", gpu="rtx-4090", available=1, price_usd_per_hour=9.0))
    revisions = len(world.revisions)
    verdict = sleepy.lives(3 * TICK_S, {"chat": 30.0, "code": 10.0})
    assert verdict.state.status == "short"
    assert len(world.revisions) == revisions
    assert {replica.model for replica in world.plan.replicas} == {"chat"}


def test_a_model_that_wakes_is_served_without_room_to_spare_where_there_is_no_more() -> None:
    """20 questions/s and 10 edits/s of 20 each, on the two machines that are left."""
    sleepy = Sleepy(two_models())
    sleepy.lives(300.0, {"chat": 20.0, "code": 10.0})
    sleepy.lives(AFTER_S + 6 * TICK_S, {"chat": 20.0, "code": 0.0})
    sleepy.world.poll(an_offer("tiny", gpu="rtx-4090", available=1, price_usd_per_hour=9.0))
    sleepy.lives(TICK_S, {"chat": 19.0, "code": 10.0})
    assert {replica.model for replica in sleepy.world.plan.replicas} == {"chat", "code"}
    assert sleepy.world.plan.load_multiple is not None
    assert 1.0 <= sleepy.world.plan.load_multiple < 1.2


def test_only_models_that_are_named_sleep_and_all_wake_when_none_may() -> None:
    sleepy = Sleepy(two_models(), sleep={"models": ["code"], "after_s": AFTER_S})
    sleepy.lives(AFTER_S + 6 * TICK_S, {"chat": 0.0, "code": 0.0})
    assert sleepy.asleep == ["code"]
    sleepy.world.policy = sleepy.world.policy.model_copy(update={"sleep": None})
    sleepy.lives(TICK_S, {"chat": 0.0, "code": 0.0})
    assert sleepy.asleep == []


def test_a_policy_that_is_not_carried_out_by_itself_lets_nothing_go() -> None:
    sleepy = Sleepy(automatic=False)
    verdict = sleepy.lives(AFTER_S + 4 * TICK_S, {"chat": 0.0})
    assert (sleepy.asleep, verdict.state.status) == ([], "manual")


def test_consumers_of_a_plan_whose_models_sleep() -> None:
    plan = fallen_asleep().world.plan
    [sleeper] = plan.sleeping
    router = json.loads(exported(plan, "router").content)
    assert (router["weights"], router["sleeping"]) == ({}, {"chat": {"retry_after_s": 153}})
    with pytest.raises(NothingToRunError, match="all models of the plan sleep"):
        exported(plan, "kubernetes")
    outputs = json.loads(state_document(plan, deployment="chat", lineage=plan.id))["outputs"]
    assert outputs["rentals"]["value"] == outputs["replicas"]["value"] == {}
    assert outputs["sleeping"]["value"] == {"chat": {"starts_in_s": pytest.approx(sleeper.starts_in_s)}}


def test_what_may_sleep_is_checked() -> None:
    min_cost = a_problem().model_dump(mode="json", by_alias=True, exclude_unset=True)
    throughput = {**min_cost, "objective": {"kind": "max_throughput"}, "budget_usd_per_hour": 5.0}
    for sleep, problem, field in (
        ({"models": ["chad"]}, min_cost, "policy.sleep.models"),
        ({"after_s": 1.0}, min_cost, "policy.sleep.after_s"),
        ({}, throughput, "policy.sleep"),
    ):
        with pytest.raises(DocumentError) as caught:
            validate(NewDeploymentDocument, {"name": "chat", "problem": problem, "policy": {"sleep": sleep}})
        assert [one.field for one in caught.value.problems] == [field]
