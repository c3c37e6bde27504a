"""Prefill and decode apart inside one machine: found, proven on its own terms, explained, and kept while it runs."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.market.machines import MOST_MACHINES
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.problem import LatencyLimit, Offer, Problem, Search
from sutler.solver.verify import verify
from tests.builders import a_gpu, a_model, a_problem, a_workload, an_offer, measured
from tests.solver.planning_builders import about
from tests.solver.role_builders import SITE, measured_apart, with_mode

LINKED = a_gpu("a", link_gb_per_s=100.0)


def node(**others: Any) -> Offer:
    """Eight H100 joined by NVLink."""
    return an_offer("h100-sxm", 8, price=20.0, **others)


def served(*offers: Offer, mode: Any = "auto", demand: float = 4.0, **others: Any) -> Problem:
    """Llama 3.3 70B for long prompts under a tight limit per token."""
    slo = (LatencyLimit("ttft", 90, 2.0), LatencyLimit("tpot", 90, 0.03))
    model = a_model(
        a_workload(demand=demand, input_tokens=3000.0, output_tokens=250.0),
        spec=load_models()["llama-3.3-70b"],
        slo=slo,
    )
    return a_problem(
        models=[replace(model, precision="fp8")],
        offers=offers,
        gpus=[load_gpus()[one] for one in sorted({offer.gpu for offer in offers})],
        search=Search(disaggregation=mode),
        measured_only=False,
        **others,
    )


def places(plan: Plan) -> dict[str, tuple[int, int]]:
    """The (rental, machine) of every replica."""
    return {replica.id: (replica.stages[0].rental, replica.stages[0].machine) for replica in plan.replicas}


def solved(problem: Problem) -> Plan:
    plan = solve(problem)
    assert verify(problem, plan) == ()
    at = places(plan)
    assert all(at[transfer.prefill] == at[transfer.decode] for transfer in plan.kv_transfers)
    return plan


@pytest.mark.parametrize("divisible", [False, True])
def test_one_nvlink_machine_hands_over_inside(divisible: bool) -> None:
    off = solved(served(node(divisible=divisible), mode="off"))
    auto = solved(served(node(divisible=divisible)))
    only = solved(served(node(divisible=divisible), mode="only"))
    assert auto.kv_transfers
    assert only.kv_transfers
    assert (auto.value or 0.0) > (off.value or 0.0) * 1.2
    assert (auto.value or 0.0) >= (only.value or 0.0)
    assert {replica.role for replica in only.replicas} == {"prefill", "decode"}
    assert [combo.network for combo in only.combos] == ["cloud:h100-sxm-8, rentals[0], machine 0"]
    assert all(transfer.exposed_s is not None and transfer.exposed_s < 0.02 for transfer in only.kv_transfers)


def test_equal_machines_each_hand_over_inside_themselves() -> None:
    plan = solved(served(node(available=4), objective="min_cost", demand=18.0, budget_usd_per_hour=None))
    assert plan.value == about(60.0)
    assert len({places(plan)[transfer.prefill] for transfer in plan.kv_transfers}) == 3
    apart_off = solved(
        served(node(available=4), mode="off", objective="min_cost", demand=18.0, budget_usd_per_hour=None)
    )
    assert apart_off.value == about(80.0)


def test_two_machines_without_a_network_hand_nothing_over() -> None:
    rows = [measured("a", {"w1": 4.0}, role="prefill"), measured("a", {"w1": 4.0}, role="decode")]
    problem = a_problem(
        offers=[an_offer("a", available=2)], gpus=[LINKED], rows=rows, search=Search(disaggregation="only")
    )
    assert solve(problem).status == "infeasible"
    inside = replace(problem, offers=(an_offer("a", 2),))
    assert solved(inside).value == about(4.0)


def test_a_machine_whose_gpus_have_no_link_hands_nothing_over() -> None:
    problem = measured_apart(an_offer("a", 2), search=Search(disaggregation="only"))
    plan = solve(problem)
    assert plan.status == "infeasible"
    assert "inside one machine" in plan.conflicts[0].remedy
    assert solve(
        measured_apart(an_offer("a", 2), search=Search(disaggregation="only"), gpus=[LINKED])
    ).value == about(5.0)


def test_a_slow_link_is_counted_on_both_sides() -> None:
    fast, slow = (
        solved(served(node(intra_machine_gb_per_s=gb_per_s), mode="only")).kv_transfers[0].exposed_s
        for gb_per_s in (450.0, 32.0)
    )
    assert fast is not None
    assert slow is not None
    assert slow > fast


def test_of_the_slices_of_a_machine_the_whole_hands_over() -> None:
    slices = [
        an_offer(
            "h100-sxm",
            size,
            price=2.5 * size,
            offer_id=f"{size}-{first}",
            machine_id="m",
            machine_gpus=8,
            gpu_ids=tuple(range(first, first + size)),
        )
        for size in (1, 2, 4, 8)
        for first in range(0, 8, size)
    ]
    plan = solved(served(*slices))
    assert plan.kv_transfers
    assert [rental.offer_id for rental in plan.rentals] == ["8-0"]


def test_held_machines_come_first_then_the_cheapest_of_each_gpu_type() -> None:
    dear, cheap = node(offer_id="dear", available=20), node(offer_id="cheap", available=20)
    cheap = replace(cheap, price_usd_per_hour=16.0)
    held = node(offer_id="kept", available=2, held=True)
    other = an_offer("a100-sxm4-80gb", 8, price=30.0, available=3)
    problem = served(dear, cheap, held, other)
    supply = build_supply(problem)
    for_rent = {(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (3, 0), (3, 1), (3, 2)}
    assert set(supply.pool_of_machine) == {(2, 0), (2, 1)} | for_rent
    assert len(for_rent) == MOST_MACHINES
    assert not build_supply(with_mode(problem, "off")).pool_of_machine
    assert any(
        "of 43 machines for rent without a network" in one for one in solve(served(dear, cheap, held, other)).warnings
    )


def test_machines_with_a_network_hand_over_on_it() -> None:
    problem = served(node(available=2, **SITE))
    assert not build_supply(problem).pool_of_machine
    assert {combo.network for combo in solve(problem).combos} <= {"cloud:s1"}


@pytest.mark.parametrize("change", ["apart", "shares", "network"])
def test_what_is_handed_over_to_another_machine_is_refused(change: str) -> None:
    """The plan of one machine, said to stand on two."""
    rows = [measured("a", {"w1": 4.0}, role="prefill"), measured("a", {"w1": 4.0}, role="decode")]
    problem = a_problem(
        offers=[an_offer("a", 2, available=2)], gpus=[LINKED], rows=rows, search=Search(disaggregation="only")
    )
    plan = solved(problem)
    first, *others = plan.kv_transfers
    at = places(plan)
    decoding = [replica.id for replica in plan.replicas if replica.role == "decode"]
    elsewhere = next(name for name in decoding if at[name] != at[first.prefill])
    if change == "network":
        moved = tuple(
            replace(one, stages=tuple(replace(stage, machine=1 - stage.machine) for stage in one.stages))
            if one.id == first.decode
            else one
            for one in plan.replicas
        )
        wrong = replace(plan, replicas=moved)
    else:
        transfer = replace(first, decode=elsewhere)
        wrong = replace(plan, kv_transfers=(transfer, *(others if change == "apart" else ())))
    assert any("one network or one machine" in sentence for sentence in verify(problem, wrong))
