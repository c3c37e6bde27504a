"""Both methods against trying everything on tiny random markets, and the brute force against sums by hand."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.problem import Disaggregation, Objective, ObjectiveKind, Offer, Problem, Search, SolveOptions
from sutler.solver.verify import verify
from tests.builders import (
    APPENDIX_C_MAKESPAN_S,
    OBJECTIVES,
    a_gpu,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    measured,
    random_problem,
    random_roles_problem,
)
from tests.looped import for_each
from tests.solver.brute_force import Optimum, optimum
from tests.solver.planning_builders import about
from tests.solver.role_builders import with_mode

SEEDS = range(28)
# On 480 the first plan that the search finds is already the best one.
SEARCHED_SEEDS = (*range(80, 98), 480)
# What the finish may leave: its last phases stop at 0.5 % or after some nodes.
FINISH_TOLERANCE_FRACTION = 0.006
ALTERNATIVE_TOLERANCE_FRACTION = 0.01
WITHOUT_EXTRAS = SolveOptions(alternatives=False)


def differs(found: float | None, expected: float | None, tolerance: float) -> bool:
    if found is None or expected is None:
        return found is not expected
    return abs(found - expected) > tolerance * abs(expected) * (1 + 1e-6)


def defects(problem: Problem, plan: Plan, best: Optimum) -> list[str]:
    """What is wrong with a plan whose true optimum is known."""
    options = problem.options
    tolerance = options.relative_gap + (options.tolerance_fraction if options.method == "binary_search" else 0.0)
    found = list(verify(problem, plan))
    if plan.status != ("infeasible" if best.value is None else "optimal"):
        found.append(f"status {plan.status} with a true optimum of {best.value}")
    if differs(plan.value, best.value, tolerance):
        found.append(f"value {plan.value}, true optimum {best.value}")
    elif plan.bound is not None and best.value is not None and _cuts_off(problem, plan.bound, best.value):
        found.append(f"bound {plan.bound} denies the true optimum {best.value}")
    spent, needed = plan.cost_usd_per_hour, best.usd_per_hour
    if spent is not None and needed is not None and spent > needed * (1 + FINISH_TOLERANCE_FRACTION):
        found.append(f"{spent} $/h for an optimum that {needed} $/h reach")
    return found


def _cuts_off(problem: Problem, bound: float, best: float) -> bool:
    slack = 1e-6 * abs(best)
    return bound < best - slack if problem.objective.kind == "max_throughput" else bound > best + slack


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", SEEDS, quick=5)
def test_the_exact_method_finds_the_optimum_of_a_tiny_market(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    assert defects(problem, solve(problem), optimum(problem)) == []


@pytest.mark.parametrize("objective", ["max_throughput", "min_makespan"])
@for_each("seed", SEARCHED_SEEDS, quick=3)
def test_the_binary_search_finds_the_optimum_of_a_tiny_market(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_problem(seed, objective), options=SolveOptions(method="binary_search"))
    assert defects(problem, solve(problem), optimum(problem)) == []


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", SEEDS[:14], quick=4)
def test_each_alternative_is_the_optimum_without_one_gpu_type(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    plan = solve(problem)
    assert {alternative.without for alternative in plan.alternatives} == {rental.gpu for rental in plan.rentals}
    for alternative in plan.alternatives:
        without = replace(problem.limits, max_gpus={**problem.limits.max_gpus, alternative.without: 0})
        best = optimum(replace(problem, limits=without))
        assert not differs(alternative.value, best.value, ALTERNATIVE_TOLERANCE_FRACTION), (alternative, best)
        assert alternative.without not in {rental.gpu for rental in alternative.rentals}
        spent = sum(rental.price_usd_per_hour * rental.count for rental in alternative.rentals)
        assert (alternative.cost_usd_per_hour or 0.0) == pytest.approx(spent)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(11), quick=3)
def test_the_exact_method_finds_the_optimum_of_prefill_and_decode_apart(seed: int, objective: ObjectiveKind) -> None:
    problem = random_roles_problem(seed, objective)
    assert defects(problem, solve(problem), optimum(problem)) == []


@pytest.mark.parametrize("objective", ["max_throughput", "min_makespan"])
@for_each("seed", range(30, 38), quick=1)
def test_the_binary_search_finds_the_optimum_of_prefill_and_decode_apart(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_roles_problem(seed, objective), options=SolveOptions(method="binary_search"))
    assert defects(problem, solve(problem), optimum(problem)) == []


@pytest.mark.parametrize("mode", ["off", "only"])
@for_each("seed", range(50, 60))
def test_the_exact_method_finds_the_optimum_of_the_roles_that_it_is_left(seed: int, mode: Disaggregation) -> None:
    problem = random_roles_problem(seed)
    problem = replace(problem, search=replace(problem.search, disaggregation=mode))
    assert defects(problem, solve(problem), optimum(problem)) == []


@for_each("seed", range(65, 75))
def test_each_alternative_with_roles_is_the_optimum_without_one_gpu_type(seed: int) -> None:
    problem = random_roles_problem(seed)
    plan = solve(problem)
    assert {alternative.without for alternative in plan.alternatives} == {rental.gpu for rental in plan.rentals}
    for alternative in plan.alternatives:
        without = replace(problem.limits, max_gpus={**problem.limits.max_gpus, alternative.without: 0})
        best = optimum(replace(problem, limits=without))
        assert not differs(alternative.value, best.value, ALTERNATIVE_TOLERANCE_FRACTION), (alternative, best)


@pytest.mark.slow
def test_the_random_markets_with_roles_run_apart_now_and_not_then() -> None:
    plans = [solve(replace(random_roles_problem(seed), options=WITHOUT_EXTRAS)) for seed in range(40)]
    answered = [plan for plan in plans if plan.value is not None]
    apart = [plan for plan in answered if plan.kv_transfers]
    together = [plan for plan in apart if any(replica.role == "aggregated" for replica in plan.replicas)]
    assert len(answered) >= 25
    assert 8 <= len(apart) <= len(answered) - 8
    assert together


def test_the_random_markets_are_neither_all_alike_nor_mostly_hopeless() -> None:
    values = [optimum(random_problem(seed)).value for seed in SEEDS]
    answered = {round(value, 6) for value in values if value is not None}
    assert len(SEEDS) * 3 // 4 < len(answered) < len(SEEDS)
    offers = [offer for seed in SEEDS for offer in random_problem(seed).offers]
    assert any(offer.divisible for offer in offers)
    assert any(offer.site for offer in offers)
    assert any(offer.gpu_ids for offer in offers)


def test_brute_force_agrees_with_appendix_c() -> None:
    best = optimum(appendix_c())
    assert best.value == pytest.approx(APPENDIX_C_MAKESPAN_S)
    assert best.usd_per_hour == pytest.approx(8.0)


def test_brute_force_rents_the_cheaper_of_two_ways_to_one_rate() -> None:
    """3 req/s: one b at 4 $/h, or two a at 1.5 $/h each that carry 2 req/s each."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=3.0))],
        offers=[an_offer("a", price=1.5, available=3), an_offer("b", price=4.0)],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 5.0})],
    )
    assert optimum(problem) == Optimum(3.0, 3.0)
    with_headroom = replace(problem, objective=Objective("min_cost", headroom_fraction=0.5))
    assert optimum(with_headroom) == Optimum(4.0, 4.0)


def test_brute_force_splits_a_pipeline_over_machines_only_where_there_is_a_network() -> None:
    site: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
    rows = [measured(["a", "a"], {"w1": 2.0})]
    assert optimum(a_problem(offers=[an_offer("a", available=2)], rows=rows)).value is None
    assert optimum(a_problem(offers=[an_offer("a", available=2, **site)], rows=rows)).value == pytest.approx(2.0)
    assert optimum(a_problem(offers=[an_offer("a", 2)], rows=rows)).value == pytest.approx(2.0)


def test_brute_force_does_not_rent_one_card_twice() -> None:
    slices = [
        an_offer("a", 2, offer_id="left", machine_id="m", gpu_ids=(0, 1)),
        an_offer("a", 2, offer_id="middle", machine_id="m", gpu_ids=(1, 2)),
        an_offer("a", 1, offer_id="right", machine_id="m", gpu_ids=(2,)),
    ]
    problem = a_problem(offers=slices, rows=[measured("a", {"w1": 1.0})])
    assert optimum(problem).value == pytest.approx(3.0)
    assert optimum(replace(problem, offers=tuple(slices[:2]))).value == pytest.approx(2.0)


def apart(*offers: Offer, **others: Any) -> Problem:
    """a prefills 4 prompts a second and decodes 1, b prefills 1 and decodes 3."""
    rows = [
        measured("a", {"w1": 4.0}, role="prefill"),
        measured("b", {"w1": 1.0}, role="prefill"),
        measured("a", {"w1": 1.0}, role="decode"),
        measured("b", {"w1": 3.0}, role="decode"),
    ]
    return a_problem(offers=offers, rows=rows, search=Search(disaggregation="auto"), **others)


def test_brute_force_hands_over_within_a_site_alone() -> None:
    """3 req/s on an a and a b of one site; on two sites nothing can be handed over."""
    site: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
    one, other = an_offer("a", **site), an_offer("b", **site)
    assert optimum(apart(one, other)).value == pytest.approx(3.0)
    assert optimum(apart(one, replace(other, site="s2"))).value is None
    assert optimum(apart(one, replace(other, inter_machine_gb_per_s=None))).value is None


def test_brute_force_hands_over_inside_one_machine() -> None:
    """An a prefills 4 prompts a second and another decodes 1 of them: beside each other, not on two machines."""
    linked = [a_gpu("a", link_gb_per_s=100.0), a_gpu("b")]
    assert optimum(apart(an_offer("a", 2), gpus=linked)).value == pytest.approx(1.0)
    assert optimum(apart(an_offer("a", available=2), gpus=linked)).value is None
    assert optimum(apart(an_offer("a", 2))).value is None


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(100, 110), quick=2)
def test_the_exact_method_finds_the_optimum_inside_machines(seed: int, objective: ObjectiveKind) -> None:
    """The same markets on GPUs with links, most sites without their networks."""
    problem = random_roles_problem(seed, objective)
    offers = [replace(one, site=one.site if i % 3 else None) for i, one in enumerate(problem.offers)]
    gpus = {name: replace(gpu, link_gb_per_s=100.0) for name, gpu in problem.gpus.items()}
    problem = replace(problem, offers=tuple(offers), gpus=gpus)
    assert defects(problem, solve(problem), optimum(problem)) == []


@for_each("seed", [*range(101, 119, 2), *range(121, 143, 2)], quick=8)  # 119 has ten times as many fleets
def test_the_exact_method_finds_the_optimum_where_most_can_only_hand_over_inside_machines(seed: int) -> None:
    problem = random_roles_problem(seed, OBJECTIVES[seed // 2 % len(OBJECTIVES)])
    offers = [
        replace(one, site=one.site if i % 4 == 3 else None, gpus=one.gpus if one.machine_id else max(2, one.gpus))
        for i, one in enumerate(problem.offers)
    ]
    gpus = {name: replace(gpu, link_gb_per_s=100.0) for name, gpu in problem.gpus.items()}
    problem = with_mode(replace(problem, offers=tuple(offers), gpus=gpus), "only")
    assert defects(problem, solve(problem), optimum(problem)) == []


def test_brute_force_counts_prompts_and_answers_apart() -> None:
    """Two b decode at most 6 prompts a second and an a prefills 4: a budget that leaves one b out has 3."""
    site: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
    offers = [an_offer("a", price=1.0, **site), an_offer("b", price=2.0, available=2, **site)]
    assert optimum(apart(*offers)) == Optimum(about(4.0), about(5.0))
    assert optimum(apart(*offers, budget_usd_per_hour=4.0)) == Optimum(about(3.0), about(3.0))
