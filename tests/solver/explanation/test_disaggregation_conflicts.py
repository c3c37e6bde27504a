"""What an infeasible plan says where prefill and decode have to run apart, and that granting it is enough."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Conflict
from sutler.solver.problem import LatencyLimit, Problem, Search
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.planning_builders import about
from tests.solver.role_builders import SITE, cauchy, measured_apart

ONLY = Search(disaggregation="only")


def the_conflict(problem: Problem) -> Conflict:
    plan = solve(problem)
    assert plan.status == "infeasible"
    (conflict,) = plan.conflicts
    return conflict


@pytest.mark.parametrize("site", [{}, {"site": "s1"}, {**SITE, "inter_machine_gb_per_s": 0.0}])
def test_without_a_network_there_is_nothing_to_hand_over_on(site: dict[str, Any]) -> None:
    conflict = the_conflict(measured_apart(an_offer("a", available=3, **site), search=ONLY))
    assert (conflict.constraint, conflict.needed, conflict.available) == ("network", 1.0, 0.0)
    assert "inter_machine_gb_per_s" in conflict.remedy
    assert solve(measured_apart(an_offer("a", available=3, **SITE), search=ONLY)).status == "optimal"


@pytest.mark.parametrize("missing", ["prefill", "decode"])
def test_a_role_that_nobody_measured_is_named(missing: str) -> None:
    problem = measured_apart(an_offer("a", available=3, **SITE), search=ONLY)
    conflict = the_conflict(replace(problem, measured=tuple(row for row in problem.measured if row.role != missing)))
    assert conflict.constraint == f"demand/chat/w1/{missing}"
    assert f"role: {missing}" in conflict.remedy


def test_two_networks_with_one_role_each_are_not_enough() -> None:
    rows = [measured("a", {"w1": 4.0}, role="prefill"), measured("b", {"w1": 5.0}, role="decode")]
    offers = [an_offer("a", **SITE), an_offer("b", **{**SITE, "site": "s2"})]
    conflict = the_conflict(a_problem(offers=offers, rows=rows, search=ONLY))
    assert conflict.constraint.startswith(("demand/chat/w1", "network"))


def test_a_budget_too_small_for_a_pair_names_its_price() -> None:
    """2 $/h for the one that prefills and 2 for the one that decodes."""
    problem = measured_apart(an_offer("a", price=2.0, available=3, **SITE), search=ONLY, budget_usd_per_hour=3.0)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed, conflict.available) == ("budget", about(4.0), 3.0)
    assert solve(replace(problem, budget_usd_per_hour=4.0)).status == "optimal"
    assert solve(replace(problem, search=Search(disaggregation="auto"))).status == "optimal"


def test_a_market_too_small_for_a_pair_names_the_supply() -> None:
    conflict = the_conflict(measured_apart(an_offer("a", **SITE), search=ONLY))
    assert conflict.constraint.startswith("supply/a@")
    assert (conflict.needed, conflict.available) == (about(2.0), 1.0)


def test_a_demand_beyond_all_pairs_is_named_with_what_they_carry() -> None:
    """Three GPUs carry 10 requests a second at 1 + 2."""
    problem = measured_apart(
        an_offer("a", available=3, **SITE),
        search=ONLY,
        objective="min_cost",
        models=[a_model(a_workload(demand=12.0))],
    )
    plan = solve(problem)
    assert plan.status == "infeasible"
    demand = next(conflict for conflict in plan.conflicts if conflict.constraint.startswith("demand"))
    assert (demand.needed, demand.available) == (about(12.0), about(10.0, rel=0.01))
    model = replace(problem.models[0], workloads=(a_workload(demand=9.9),))
    assert solve(replace(problem, models=(model,))).status == "optimal"


def test_a_model_that_fits_on_no_gpu_that_hands_over_is_named() -> None:
    """Llama 3 70B takes 140 GB; one L40S has 48, and nothing is beside one H200."""
    cards = load_gpus()
    problem = a_problem(
        models=[a_model(a_workload(), spec=load_models()["llama-3-70b"])],
        offers=[an_offer("l40s", **SITE), an_offer("h200-sxm", 1, price=4.0)],
        gpus=[cards["l40s"], cards["h200-sxm"]],
        search=Search(disaggregation="only", max_pipeline_stages=1),
        measured_only=False,
    )
    conflict = the_conflict(problem)
    assert conflict.constraint.startswith("demand/chat/w1/")
    assert "memory" in conflict.remedy


def limited(*slo: LatencyLimit, share: float | None = None, gb_per_s: float = 50.0) -> Problem:
    problem = cauchy((2000.0, 300.0), gb_per_s=gb_per_s, search=Search(disaggregation="only", max_pipeline_stages=1))
    model = replace(problem.models[0], slo=slo, prefill_share_fraction=share)
    return replace(problem, models=(model,))


@pytest.mark.slow
def test_a_contradictory_split_is_named() -> None:
    """30 s end to end are plenty, but not where prefill is left 0.1 % of them."""
    limit = LatencyLimit("e2e", 90, 30.0)
    assert solve(limited(limit)).status == "optimal"
    conflict = the_conflict(limited(limit, share=0.001))
    assert (conflict.constraint, conflict.available) == ("limit/slo_split/chat", 0.001)
    assert solve(limited(limit, share=conflict.needed)).status == "optimal"


def test_a_network_too_thin_for_the_first_token_is_named() -> None:
    """0.66 GB of keys and values take five seconds at 0.125 GB/s, of a limit of 2 s."""
    limit = LatencyLimit("ttft", 90, 2.0)
    conflict = the_conflict(limited(limit, gb_per_s=0.125))
    assert (conflict.constraint, conflict.available) == ("network", 0.125)
    assert conflict.needed > 0.125
    assert solve(limited(limit, gb_per_s=conflict.needed)).status == "optimal"


def test_a_limit_that_no_network_can_meet_is_a_limit_of_latency() -> None:
    conflict = the_conflict(limited(LatencyLimit("ttft", 90, 0.01)))
    assert conflict.constraint == "limit/slo/chat/ttft_p90_s"


def test_machines_that_hold_one_of_the_two_each_lack_a_network() -> None:
    """Llama 3 70B takes two GPUs of a machine of two, so that nothing is left beside it."""
    h100 = an_offer("h100-sxm", 2, price=4.0, available=2)
    problem = a_problem(
        models=[a_model(a_workload(), spec=load_models()["llama-3-70b"])],
        offers=[h100],
        gpus=[load_gpus()["h100-sxm"]],
        search=Search(disaggregation="only", tensor_parallel=(2,)),
        measured_only=False,
    )
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed, conflict.available) == ("network", 1.0, 0.0)
    assert "market.networks" in conflict.remedy
    assert solve(replace(problem, offers=(replace(h100, **SITE),))).status == "optimal"
