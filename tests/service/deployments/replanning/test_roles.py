"""Deployments whose prompts and answers run on replicas of their own: planned, hit by losses and changed.

At a worker's looks with the real solver, and through the API and PostgreSQL of a running service.
"""

from typing import Any

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.to_plan import solver_plan
from sutler.solver.replanning import holdings_of
from tests.service.deployments.replanning.builders import STEADY, a_holding, a_problem, an_offer, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines
from tests.service.running import Running

NETWORK: dict[str, Any] = {"site": "acme/s", "inter_machine_gb_per_s": 50.0}


def measured(gpu: str, role: str, questions_rps: float, documents_rps: float) -> dict[str, Any]:
    rps = {"question": questions_rps, "document": documents_rps}
    return {"model": "chat", "role": role, "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": rps}


TABLE = [
    measured("h100-sxm", "prefill", 60.0, 12.0),
    measured("rtx-4090", "prefill", 8.0, 1.5),
    measured("h100-sxm", "decode", 30.0, 25.0),
    measured("rtx-4090", "decode", 14.0, 10.0),
]
MARKET = (
    an_offer(**NETWORK),
    an_offer("small", gpu="rtx-4090", price_usd_per_hour=0.7, **NETWORK),
)
SINGLES = (
    an_offer(**NETWORK),
    *(
        an_offer(
            f"single-{n}",
            gpu="rtx-4090",
            available=1,
            price_usd_per_hour=0.7 + 0.1 * n,
            machine_id=f"m{n}",
            machine_gpus=1,
            **NETWORK,
        )
        for n in range(3)
    ),
)
"""Small cards one by one; the third is spare."""


def apart(questions_rps: float = 20.0, documents_rps: float = 2.0) -> ProblemDocument:
    """Prompts are an H100's, answers two small cards'."""
    return a_problem(
        questions_rps,
        documents_rps,
        throughput={"only": True, "table": TABLE},
        search={"disaggregation": "only"},
    )


def roles(plan: PlanDocument) -> dict[str, str]:
    return {replica.id: replica.role for replica in plan.replicas}


def decoded(plan: PlanDocument) -> set[str]:
    return {transfer.decode for transfer in plan.kv_transfers}


def a_world_apart() -> World:
    return a_world(*MARKET, problem=apart())


def test_what_is_handed_over_survives_the_way_into_a_document_and_back() -> None:
    world = a_world_apart()
    plan = solver_plan(world.plan)
    again = PlanDocument.model_validate_json(world.plan.model_dump_json(by_alias=True))
    assert again == world.plan
    assert [(t.prefill, t.decode, t.fraction) for t in plan.kv_transfers] == [
        (t.prefill, t.decode, t.fraction) for t in world.plan.kv_transfers
    ]
    assert [(one.network, one.prefill_gpus) for one in plan.combos] == [
        (one.network, tuple(one.prefill_gpus.items())) for one in world.plan.combos
    ]
    assert sorted(roles(world.plan).values()) == ["decode", "decode", "prefill"]


def test_where_nothing_moves_no_plan_is_made() -> None:
    world = a_world_apart()
    world.lives(10)
    assert world.revisions == []


def test_a_lost_decode_machine_is_replaced_and_nothing_else_is_touched() -> None:
    world = a_world(*SINGLES, problem=apart())
    before = world.plan
    assert machines(world) == {"acme/large": 1, "acme/single-0": 1, "acme/single-1": 1}
    world.passes(5)
    world.reports([a_holding(count=1), a_holding("single-1", 1, gpu="rtx-4090", price_usd_per_hour=0.8)])
    verdict = world.look()
    assert machines(world) == {"acme/large": 1, "acme/single-1": 1, "acme/single-2": 1}
    assert verdict.plan is not None
    assert [(drift.kind, drift.is_urgent) for drift in verdict.drifts] == [("lost", True)]
    assert sorted(roles(world.plan).values()) == ["decode", "decode", "prefill"]
    assert len(roles(world.plan).items() & roles(before).items()) == 2
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1.0
    assert sum(t.fraction for t in world.plan.kv_transfers if t.workload == "question") == pytest.approx(1.0)


def test_a_fleet_without_any_decode_replica_serves_nothing_until_there_is_one() -> None:
    world = a_world(*SINGLES, problem=apart())
    world.passes(5)
    world.reports([a_holding(count=1)])
    verdict = world.look()
    assert verdict.considered is not None
    keep = verdict.considered.keep
    assert (keep.plan, keep.capacity_rps, keep.carries) == (None, 0.0, False)
    assert verdict.plan is not None
    assert {name for name, role in roles(world.plan).items() if role == "prefill"} == {"chat-0"}
    assert decoded(world.plan).isdisjoint({"chat-0", "chat-1", "chat-2"})


def test_more_traffic_than_prompts_can_be_read_for_brings_more_that_read_them() -> None:
    world = a_world_apart()
    before = world.plan
    world.traffic = traffic(60.0, 6.0, at=world.now, policy=world.policy)
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts] == ["rate"]
    assert sum(role == "prefill" for role in roles(world.plan).values()) >= 2
    assert roles(before).items() <= roles(world.plan).items()


def test_less_traffic_that_lasts_brings_a_smaller_fleet_of_both() -> None:
    world = a_world_apart()
    world.traffic = traffic(6.0, 0.6, at=world.now, policy=world.policy)
    before = world.plan.cost_usd_per_hour
    world.look()
    assert len(world.revisions) == 1
    assert sorted(set(roles(world.plan).values())) == ["decode", "prefill"]
    assert before is not None
    assert world.plan.cost_usd_per_hour is not None
    assert world.plan.cost_usd_per_hour < before


def test_a_problem_that_rules_out_running_apart_gets_a_fleet_that_does_not() -> None:
    world = a_world_apart()
    before = world.plan
    whole = [measured("h100-sxm", "aggregated", 20.0, 5.0), *TABLE]
    world.problem = a_problem(throughput={"only": True, "table": whole})
    verdict = world.look(is_asked=True)
    assert verdict.plan is not None
    assert set(roles(world.plan).values()) == {"aggregated"}
    diff = difference(before, world.plan, reason="test", held=world.holdings)
    assert diff.usd_per_hour.after > 0
    assert {one.key for one in diff.reroute} >= {"chat/question", "chat/question/decode"}


def test_caps_are_read_back_as_they_were_planned() -> None:
    """Estimated rates: the least power for one small model is that of a capped card."""
    world = a_world(*MARKET, problem=a_capped_problem())
    caps = {stage.power_cap_watts for replica in world.plan.replicas for stage in replica.stages}
    assert None not in caps
    read = solver_plan(world.plan)
    assert {stage.power_cap_watts for replica in read.replicas for stage in replica.stages} == caps
    assert [h.count for h in holdings_of(read.rentals)] == list(machines(world).values())
    world.traffic = traffic(2.0, 0.2, at=world.now, policy=world.policy)
    world.lives(3)
    assert world.revisions == []


def a_capped_problem() -> ProblemDocument:
    plain = a_problem(2.0, 0.2, objective={"kind": "min_power"}).model_dump(mode="json", exclude_unset=True)
    return validate(ProblemDocument, {**plain, "throughput": {}, "search": {"power_caps_fraction": [0.5, 0.7]}})


def deployed(service: Running, name: str, mode: str, table: list[dict[str, Any]]) -> dict[str, Any]:
    """A deployment on offers of its own, with its first plan carried out."""
    offers = [offer.model_dump(mode="json", exclude_none=True) for offer in SINGLES]
    snapshot = {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": offers}
    problem = apart().model_dump(mode="json", by_alias=True, exclude_unset=True) | {
        "market": {"offers": snapshot},
        "throughput": {"only": True, "table": table},
        "search": {"disaggregation": mode},
    }
    policy = {**STEADY, "cooldown_s": 0.0, "settle_s": 0.0}
    made = service.post("/v1/deployments", {"name": name, "problem": problem, "policy": policy})
    assert made.status_code == 201, made.text
    first = service.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30})
    assert first.status_code == 200, first.text
    found: dict[str, Any] = first.json()
    hold(service, name, rented(found))
    return found


def rented(plan: dict[str, Any]) -> list[dict[str, Any]]:
    keys = ("provider", "offer_id", "gpu", "gpus", "count", "price_usd_per_hour")
    return [{key: rental[key] for key in keys} for rental in plan["rentals"]]


def hold(service: Running, name: str, machines: list[dict[str, Any]]) -> None:
    answer = service.put(f"/v1/deployments/{name}/holdings", {"holdings": machines})
    assert answer.status_code == 200, answer.text


def roles_in(plan: dict[str, Any]) -> dict[str, str]:
    return {replica["id"]: replica["role"] for replica in plan["replicas"]}


def test_a_deployment_that_loses_a_decode_machine_gets_a_revision_that_starts_one_and_moves_answers(
    service: Running,
) -> None:
    first = deployed(service, "apart", "only", TABLE)
    assert sorted(roles_in(first).values()) == ["decode", "decode", "prefill"]
    assert sum(t["fraction"] for t in first["kv_transfers"] if t["workload"] == "question") == pytest.approx(1.0)
    assert [(one["prefill_gpus"], one["decode_gpus"]) for one in first["combos"]] == [
        ({"h100-sxm": 1}, {"rtx-4090": 2})
    ]
    hold(service, "apart", [one for one in rented(first) if one["offer_id"] != "single-0"])
    second = service.get("/v1/deployments/apart/plan", params={"after": 1, "wait_s": 30})
    assert second.status_code == 200, second.text
    plan = second.json()
    assert (plan["revision"], sorted(roles_in(plan).values())) == (2, ["decode", "decode", "prefill"])
    kept = roles_in(plan).items() & roles_in(first).items()
    assert sorted(role for _, role in kept) == ["decode", "prefill"]
    diff = service.get("/v1/deployments/apart/plans/2/diff", params={"from": 1}).json()
    assert [(one["offer_id"], one["count"], one["restart"]) for one in diff["keep"]] == [
        ("large", 1, []),
        ("single-1", 1, []),
    ]
    assert [(one["offer_id"], one["count"]) for one in diff["start"]] == [("single-2", 1)]
    assert [(one["offer_id"], one["held"]) for one in diff["stop"]] == [("single-0", False)]
    assert diff["reroute"]
    for one in diff["reroute"]:
        assert one["key"].endswith("/decode")
        assert (one["usd_per_hour"], one["phase"]) == (0.0, 2)
        assert one["reason"].endswith("% of it is handed over to other replicas than before")


def test_a_deployment_that_may_run_apart_is_planned_so_where_that_is_cheaper(service: Running) -> None:
    whole = [measured("h100-sxm", "aggregated", 10.0, 2.0), *TABLE]
    plan = deployed(service, "perhaps", "auto", whole)
    assert set(roles_in(plan).values()) == {"prefill", "decode"}
    stored = service.get("/v1/deployments/perhaps/plan").json()
    assert (stored["kv_transfers"], stored["combos"]) == (plan["kv_transfers"], plan["combos"])
