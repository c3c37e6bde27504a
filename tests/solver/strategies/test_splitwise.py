"""Splitwise's designs: which types they stand for, and pools that can be sized by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Plan
from sutler.solver.problem import ObjectiveKind, Offer, Problem
from sutler.solver.strategies import splitwise
from sutler.solver.strategies.comparing import NotApplicableError
from sutler.solver.strategies.splitwise import DESIGNS, machine_types
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, a_gpu, a_model, a_problem, a_workload, an_offer
from tests.solver.planning_builders import about, rented_gpus
from tests.solver.strategies.strategy_builders import in_roles, plenty_of_time

AA, HH, HA, HHCAP = DESIGNS


def networked(gpu: str, price: float, **others: object) -> Offer:
    return an_offer(gpu, price=price, available=9, site="s", inter_machine_gb_per_s=25.0, **others)  # type: ignore[arg-type]


def a_dgx_market(objective: ObjectiveKind = "min_cost") -> Problem:
    """Table V: H100 at 2.35 times the price and 1.75 times the watts of A100."""
    return a_problem(
        objective=objective,
        models=[
            a_model(
                a_workload("w1", demand=3.0, input_tokens=1500.0, output_tokens=130.0),
                spec=load_models()["llama-3.1-8b"],
            )
        ],
        offers=[networked("a100-sxm4-80gb", 1.0), networked("h100-sxm", 2.35)],
        gpus=[load_gpus()[name] for name in ("a100-sxm4-80gb", "h100-sxm")],
        budget_usd_per_hour=12.0,
        measured_only=False,
    )


def a_small_case(**others: object) -> Problem:
    """a prefills 1/s and decodes 3/s for 1 $/h, h prefills 4/s and decodes 4/s for 2 $/h; 6 requests/s."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=6.0))],
        offers=[networked("a", 1.0), networked("h", 2.0)],
        rows=[*in_roles("a", 1.0, 3.0), *in_roles("h", 4.0, 4.0)],
        gpus=[a_gpu("a", peak_tflops_bf16_dense=300.0), a_gpu("h", peak_tflops_bf16_dense=900.0)],
    )
    return replace(problem, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_on_the_papers_market_the_letters_are_the_papers_machines(objective: ObjectiveKind) -> None:
    problem = a_dgx_market(objective)
    assert machine_types(problem) == {"A": "a100-sxm4-80gb", "H": "h100-sxm"}
    assert HA.title(problem) == "prefill on h100-sxm alone, decode on a100-sxm4-80gb alone"
    assert HHCAP.title(problem) == "prefill on h100-sxm alone, decode on h100-sxm alone at 50% of its TDP"


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("max_throughput", "cheap"),  # 500 GB/s for 0.4 $/h against 1200 for 2
        ("min_power", "frugal"),  # 1200 GB/s for 300 W against 500 for 400
    ],
)
def test_a_is_the_type_with_the_most_bandwidth_for_what_is_saved(objective: ObjectiveKind, expected: str) -> None:
    cards = [
        a_gpu("cheap", peak_tflops_bf16_dense=100.0, memory_bandwidth_gb_per_s=500.0),
        a_gpu("frugal", peak_tflops_bf16_dense=200.0, memory_bandwidth_gb_per_s=1200.0, tdp_watts=300.0),
        a_gpu("fast", peak_tflops_bf16_dense=900.0),
    ]
    offers = [networked("cheap", 0.4), networked("frugal", 2.0), networked("fast", 3.0)]
    problem = a_problem(objective=objective, offers=offers, gpus=cards)
    assert machine_types(problem) == {"A": expected, "H": "fast"}
    unknown = replace(problem, gpus={**problem.gpus, "cheap": a_gpu("cheap")})
    with pytest.raises(NotApplicableError, match=r"gpus\.cheap\.peak_tflops_bf16_dense"):
        machine_types(unknown)
    assert HA.title(unknown) == "prefill on type H alone, decode on type A alone"


def test_a_lone_type_is_a() -> None:
    problem = a_small_case()
    problem = replace(problem, offers=(*problem.offers[:1], replace(problem.offers[1], site=None)))
    assert machine_types(problem) == {"A": "a"}
    assert _verified(AA, problem).value == about(8.0)
    for design in (HH, HA, HHCAP):
        with pytest.raises(NotApplicableError, match="two GPU types"):
            splitwise.plan(design, problem, plenty_of_time)


def test_without_a_network_there_are_no_pools() -> None:
    problem = a_small_case()
    problem = replace(problem, offers=tuple(replace(offer, site=None) for offer in problem.offers))
    with pytest.raises(NotApplicableError, match="inter_machine_gb_per_s"):
        splitwise.plan(AA, problem, plenty_of_time)


@pytest.mark.parametrize(
    ("design", "gpus"),
    [
        (AA, {"a": 8}),  # 6 for prompts, 2 for answers: 8 $/h
        (HH, {"h": 4}),  # 2 and 2: 8 $/h
        (HA, {"h": 2, "a": 2}),  # 6 $/h
    ],
)
def test_pools_are_as_large_as_the_load_needs(design: splitwise.Design, gpus: Mapping[str, int]) -> None:
    plan = _verified(design, a_small_case())
    assert rented_gpus(plan) == gpus
    assert plan.value == about(1.0 * gpus.get("a", 0) + 2.0 * gpus.get("h", 0))
    assert plan.status == "optimal"
    assert {replica.role for replica in plan.replicas} == {"prefill", "decode"}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_prefill_is_on_one_type_and_decode_on_one(objective: ObjectiveKind) -> None:
    problem = a_dgx_market(objective)
    for design, types in (
        (AA, ("a100-sxm4-80gb",) * 2),
        (HH, ("h100-sxm",) * 2),
        (HA, ("h100-sxm", "a100-sxm4-80gb")),
    ):
        assert _types(_verified(design, problem)) == {"prefill": {types[0]}, "decode": {types[1]}}


def test_capped_answers_draw_half_and_prompts_all() -> None:
    plan = _verified(HHCAP, a_dgx_market("min_power"))
    caps = {replica.role: {stage.power_cap_watts for stage in replica.stages} for replica in plan.replicas}
    assert caps == {"prefill": {None}, "decode": {350.0}}
    uncapped = _verified(HH, a_dgx_market("min_power"))
    assert plan.value is not None
    assert uncapped.value is not None
    assert plan.value < uncapped.value


def test_caps_are_for_watts_and_for_estimated_rates() -> None:
    with pytest.raises(NotApplicableError, match="min_power"):
        splitwise.plan(HHCAP, a_dgx_market("min_cost"), plenty_of_time)
    hungry = a_small_case(objective=replace(a_small_case().objective, kind="min_power"))
    with pytest.raises(NotApplicableError, match="measured rates"):
        splitwise.plan(HHCAP, hungry, plenty_of_time)


def test_types_on_different_networks_cannot_share_the_work() -> None:
    problem = a_small_case()
    problem = replace(problem, offers=(problem.offers[0], replace(problem.offers[1], site="t")))
    plan = _verified(HA, problem)
    assert plan.status == "infeasible"
    assert [conflict.constraint for conflict in plan.conflicts] == ["strategy/splitwise/ha"]


def _types(plan: Plan) -> Mapping[str, set[str]]:
    roles: Sequence[str] = ("prefill", "decode")
    return {role: {s.gpu for r in plan.replicas if r.role == role for s in r.stages} for role in roles}


def _verified(design: splitwise.Design, problem: Problem) -> Plan:
    planned = splitwise.plan(design, problem, plenty_of_time)
    assert planned.problem.search.disaggregation == "only"
    assert verify(planned.problem, planned.plan) == ()
    return planned.plan
