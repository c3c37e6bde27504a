"""One GPU type for everything, on the caller's market and on one without end."""

from dataclasses import replace

import pytest

from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.strategies import homogeneous
from sutler.solver.strategies.comparing import NotApplicableError
from sutler.solver.verify import verify
from tests.builders import OBJECTIVES, a_gpu, a_model, a_problem, a_workload, an_offer, appendix_c, measured, melange
from tests.solver.planning_builders import about, rented_gpus
from tests.solver.strategies.strategy_builders import plenty_of_time


def test_the_market_has_only_so_many_of_the_type() -> None:
    # Two t1: 80 requests at 1/s and 20 at 1.2/s take (80 + 20/1.2) / 2 = 48.33 s; the pair of t2 serves either at
    # 0.9/s a GPU alone, and together 2.4 and 1.5: 80/2.4 + 20/1.5 = 46.67 s against 100 / 1.8 = 55.6 s.
    planned = homogeneous.plan_limited("t1", appendix_c(), plenty_of_time)
    assert planned.plan.value == about((80 + 20 / 1.2) / 2)
    assert homogeneous.plan_limited("t2", appendix_c(), plenty_of_time).plan.value == about(80 / 2.4 + 20 / 1.5)
    assert rented_gpus(planned.plan) == {"t1": 2}
    assert planned.problem == appendix_c()


def test_an_unlimited_market_sells_what_the_budget_pays_for() -> None:
    # 8 $/h buy two pairs of t2 at 4 $/h: half of 46.67 s, and less than the 28.43 s of the real market.
    planned = homogeneous.plan_unlimited("t2", appendix_c(), plenty_of_time)
    assert planned.plan.value == about((80 / 2.4 + 20 / 1.5) / 2)
    assert verify(planned.problem, planned.plan) == ()
    assert verify(appendix_c(), planned.plan)


@pytest.mark.parametrize("gpu", ["rtx4090", "a100", "h100"])
def test_without_a_budget_an_unlimited_market_still_finds_the_cheapest_fleet(gpu: str) -> None:
    # 100 of each are for rent, more than the load needs: the two markets have the same cheapest fleet.
    scarce = replace(melange(), offers=tuple(replace(offer, available=1) for offer in melange().offers))
    unlimited = homogeneous.plan_unlimited(gpu, scarce, plenty_of_time).plan
    assert unlimited.value == about(homogeneous.plan_limited(gpu, melange(), plenty_of_time).plan.value or 0.0)


def test_the_least_power_on_an_unlimited_market() -> None:
    # One request/s each of two kinds at 1 and 0.5 per s and GPU: 1 + 2 = 3 GPUs of 400 W.
    problem = a_problem(
        objective="min_power",
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", price=0.0)],
        rows=[measured("a", {"w1": 1.0, "w2": 0.5})],
    )
    assert homogeneous.plan_limited("a", problem, plenty_of_time).plan.status == "infeasible"
    assert homogeneous.plan_unlimited("a", problem, plenty_of_time).plan.value == about(1200.0)


def test_unlimited_gpus_and_money_have_no_best_plan() -> None:
    problem = a_problem(offers=[an_offer("a")], rows=[measured("a", {"w1": 1.0})])
    with pytest.raises(NotApplicableError, match="set budget_usd_per_hour"):
        homogeneous.plan_unlimited("a", problem, plenty_of_time)
    capped = replace(problem, limits=replace(problem.limits, max_power_watts=1300.0))
    assert homogeneous.plan_unlimited("a", capped, plenty_of_time).plan.value == about(3.0)


def test_slices_of_one_machine_and_held_machines_become_kinds_of_their_own() -> None:
    slices = [
        an_offer("a", 2, price=2.0, offer_id=f"s{cards[0]}", machine_id="m", gpu_ids=cards)
        for cards in [(0, 1), (2, 3)]
    ]
    held = an_offer("a", 1, price=0.9, offer_id="mine", held=True)
    problem = a_problem(
        offers=[*slices, held, an_offer("a", 1, price=1.0, offer_id="mine")],
        rows=[measured("a:2", {"w1": 3.0}), measured("a", {"w1": 1.0})],
        budget_usd_per_hour=10.0,
    )
    # 10 $/h buy five slices of 2 GPUs at 3 requests/s.
    planned = homogeneous.plan_unlimited("a", problem, plenty_of_time)
    assert planned.plan.value == about(15.0)
    assert not any(offer.held for offer in planned.problem.offers)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_type_that_cannot_hold_the_model_is_infeasible_and_says_so(objective: ObjectiveKind) -> None:
    problem = replace(_with_a_small_card(), objective=replace(melange().objective, kind=objective))
    for plan_with in (homogeneous.plan_limited, homogeneous.plan_unlimited):
        planned = plan_with("small", problem, plenty_of_time)
        assert planned.plan.status == "infeasible"
        assert planned.plan.conflicts
        assert verify(planned.problem, planned.plan) == ()


def _with_a_small_card() -> Problem:
    return a_problem(
        offers=[an_offer("small", available=4), an_offer("large", available=4, price=3.0)],
        rows=[measured("large", {"w1": 2.0})],
        gpus=[a_gpu("small", memory_gb=8.0)],
        budget_usd_per_hour=9.0,
    )


@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
def test_a_plan_too_large_to_write_out_is_not_sought_to_its_end(objective: ObjectiveKind) -> None:
    # 10^6 requests/s at 1/s a GPU, or 10^6 $/h at 1 $/h a GPU: 10^6 replicas.
    problem = a_problem(
        objective=objective,
        models=[a_model(a_workload("w1", demand=1e6))],
        offers=[an_offer("a")],
        rows=[measured("a", {"w1": 1.0})],
        budget_usd_per_hour=1e6,
    )
    with pytest.raises(NotApplicableError, match="1,000,000 replicas"):
        homogeneous.plan_unlimited("a", problem, plenty_of_time)
