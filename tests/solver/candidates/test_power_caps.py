"""Capped GPUs: the shipped knots, what they do to either role, and the least power against trying everything."""

from dataclasses import replace
from itertools import combinations_with_replacement, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from sutler.solver import solve, throughput
from sutler.solver.candidates.enumerate import enumerate_candidates
from sutler.solver.catalog import load_models, resolve_gpu
from sutler.solver.catalog.power_caps import capped, power_caps
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.problem import Limits, Problem, Role, Search, SolveOptions
from sutler.solver.verify import verify
from tests.builders import a_gpu, a_model, a_problem, a_workload, an_offer, measured
from tests.looped import for_each
from tests.solver.planning_builders import about
from tests.solver.role_builders import H20, H800, SITE
from tests.solver.throughput.builders import at_cap, in_role, pipelines_of, rates_of, served

LLAMA_8B = load_models()["llama-3.1-8b"]


def test_a_cap_between_two_knots_is_on_the_line_between_them() -> None:
    """0.57 of the power leaves 0.6 of the arithmetic, 0.714 leaves 0.853: half way 0.7265."""
    compute, memory = power_caps().speeds((0.571 + 0.714) / 2)
    assert (compute, memory) == (about((0.6 + 0.853) / 2), 1.0)
    assert power_caps().speeds(1.0) == (1.0, 1.0)
    assert power_caps().speeds(0.143) == (about(0.07), about(0.085))  # in proportion below the first knot


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0))
@settings(derandomize=True)
def test_a_lower_cap_is_never_faster(one: float, other: float) -> None:
    low, high = sorted([one, other])
    for slow, fast in zip(power_caps().speeds(low), power_caps().speeds(high), strict=True):
        assert 0 < slow <= fast <= 1


def test_a_capped_card_draws_its_share_and_stays_itself() -> None:
    """At half of 400 W 0.43 of 989 TFLOP/s and all of 3,350 GB/s."""
    half = capped(H800, 0.5)
    assert (half.slug, half.tdp_watts, half.memory_gb) == ("h800", 200.0, 80.0)
    assert half.peak_tflops_bf16_dense == about(0.43 * 989)
    assert half.memory_bandwidth_gb_per_s == 3350.0
    assert capped(H800, 1.0) is H800
    assert capped(a_gpu("x", tdp_watts=None), 0.5).tdp_watts is None


def test_at_half_the_power_small_batches_decode_as_fast_and_prompts_take_twice_as_long() -> None:
    """Splitwise, Fig. 9. One sequence at a time waits for memory alone; 2,000 tokens are arithmetic."""
    one = pipelines_of([("h100-sxm", 4)])
    model = served("llama-3-70b", (2000, 200))
    prefill = [rates_of(model, at_cap(in_role(one, "prefill"), cap)).rps.item() for cap in (0.5, 1.0)]
    assert 0.43 < prefill[0] / prefill[1] < 0.6
    # A context so long that few sequences fit.
    few = served("llama-3-70b", (8000, 100), kv_precision="bf16")
    few = replace(few, spec=few.spec and replace(few.spec, max_context_tokens=200_000, kv_heads=64))
    decode = [rates_of(few, at_cap(in_role(one, "decode"), cap)) for cap in (0.5, 1.0)]
    assert decode[1].batch.item() < 16
    assert decode[0].rps.item() == pytest.approx(decode[1].rps.item(), rel=0.02)


def h800_and_h20(*, demand: float = 20.0, objective: Any = "min_power", **others: Any) -> Problem:
    """Single GPUs on one network for llama-3.1-8b."""
    others.setdefault("search", Search((1,), 1, disaggregation="auto", power_caps_fraction=(0.5,)))
    return a_problem(
        objective=objective,
        models=[a_model(a_workload(input_tokens=2000.0, output_tokens=200.0, demand=demand), spec=LLAMA_8B)],
        offers=[an_offer("h800", price=2.69, available=3, **SITE), an_offer("h20", price=1.5, available=3, **SITE)],
        gpus=[replace(H800, tdp_watts=700.0), replace(H20, tdp_watts=400.0)],
        measured_only=False,
        **others,
    )


def least_by_trying(problem: Problem) -> tuple[float | None, float | None]:
    """(least watts that carry the demand, most requests/s within max_power_watts), over every fleet of single GPUs.

    Fleets are multisets of (GPU, role, cap); each is routed by an LP of its own. All GPUs share one network.
    """
    model = problem.models[0]
    roles: dict[str, tuple[Role, ...]] = {
        "off": ("aggregated",),
        "auto": ("aggregated", "prefill", "decode"),
        "only": ("prefill", "decode"),
    }
    kinds = []
    for gpu in problem.gpus.values():
        layouts = pipelines_of([(gpu.slug, 1)], extra_gpus=list(problem.gpus.values()))
        for role in roles[problem.search.disaggregation]:
            for cap in (*problem.search.power_caps_fraction, 1.0):
                rated, _ = throughput.rates(problem, model, at_cap(in_role(layouts, role, kv_gb_per_s=12.5), cap))
                watts = (gpu.tdp_watts or 0.0) * cap
                kinds.append((gpu.slug, role, watts, rated.rps[0]))
    available = {offer.gpu: offer.available for offer in problem.offers}
    prices = {offer.gpu: offer.price_usd_per_hour for offer in problem.offers}
    needed = 1 + problem.objective.headroom_fraction
    least, most = np.inf, 0.0
    limit = problem.limits.max_power_watts or np.inf
    for size in range(1, sum(available.values()) + 1):
        for fleet in combinations_with_replacement(range(len(kinds)), size):
            chosen = [kinds[index] for index in fleet]
            used = [slug for slug, *_ in chosen]
            watts = sum(kind[2] for kind in chosen)
            too_many = any(used.count(slug) > available[slug] for slug in available)
            if too_many or watts > limit or sum(prices[slug] for slug in used) > (problem.budget_usd_per_hour or 1e9):
                continue
            if problem.objective.kind == "min_power" and watts >= least:
                continue
            multiple = _carried(problem, chosen)
            most = max(most, multiple)
            if multiple >= needed * (1 - 1e-9):
                least = min(least, watts)
    demand = sum(workload.demand for workload in model.workloads)
    return (None if np.isinf(least) else least), (most * demand if most > 1e-9 else None)


def _carried(problem: Problem, fleet: list[tuple[str, Role, float, Any]]) -> float:
    """max m with the demand times m served, each replica's time at most 1, prompts = answers for each workload."""
    workloads = problem.models[0].workloads
    columns = [(n, w) for n, kind in enumerate(fleet) for w in range(len(workloads)) if kind[3][w] > 0]
    served, handed = np.zeros((2, len(workloads), 1 + len(columns)))
    busy = np.zeros((len(fleet), 1 + len(columns)))
    served[:, 0] = [-workload.demand for workload in workloads]
    for column, (n, w) in enumerate(columns, start=1):
        role = fleet[n][1]
        busy[n, column] = 1 / fleet[n][3][w]
        served[w, column] = role != "prefill"
        handed[w, column] = {"prefill": 1.0, "decode": -1.0, "aggregated": 0.0}[role]
    solved = linprog(
        np.eye(1 + len(columns))[0] * -1.0,
        A_ub=busy,
        b_ub=np.ones(len(fleet)),
        A_eq=np.vstack([served, handed]),
        b_eq=np.zeros(2 * len(workloads)),
        method="highs",
    )
    return float(-solved.fun)


def a_small_market(seed: int, objective: Any) -> Problem:
    draw = Random(seed)
    problem = h800_and_h20(
        objective=objective,
        search=Search(
            (1,), 1, disaggregation=draw.choice(["auto", "auto", "only", "off"]), power_caps_fraction=(0.5,)
        ),
        limits=Limits(max_power_watts=draw.choice([800.0, 1100.0, 1500.0]) if objective != "min_power" else None),
        options=SolveOptions(alternatives=False),
    )
    workloads = [
        a_workload(
            f"w{number}",
            input_tokens=draw.choice([500.0, 2000.0, 6000.0]),
            output_tokens=draw.choice([50.0, 200.0, 800.0]),
            demand=draw.uniform(2.0, 12.0),
        )
        for number in range(draw.randint(1, 2))
    ]
    offers = [replace(offer, available=draw.randint(1, 2)) for offer in problem.offers]
    model = replace(problem.models[0], workloads=tuple(workloads))
    return replace(problem, models=(model,), offers=tuple(offers))


@pytest.mark.slow
@for_each("seed", range(12))
def test_the_least_power_is_that_of_trying_everything(seed: int) -> None:
    problem = a_small_market(seed, "min_power")
    plan, (watts, _) = solve(problem), least_by_trying(problem)
    assert verify(problem, plan) == ()
    assert (plan.status == "infeasible") == (watts is None)
    assert plan.value is None or plan.value == pytest.approx(watts, rel=2e-3)


@pytest.mark.slow
@for_each("seed", range(20, 28))
def test_the_most_within_a_power_limit_is_that_of_trying_everything(seed: int) -> None:
    problem = a_small_market(seed, "max_throughput")
    plan, (_, rps) = solve(problem), least_by_trying(problem)
    assert verify(problem, plan) == ()
    assert plan.value == pytest.approx(rps, rel=2e-3)


def caps_in(plan: Plan, role: str) -> set[float | None]:
    return {stage.power_cap_watts for replica in plan.replicas for stage in replica.stages if replica.role == role}


def test_least_power_caps_what_decodes_and_not_what_prefills() -> None:
    """Splitwise's advice, by itself: a capped token machine decodes as many, a capped prompt machine half. Only so
    many GPUs are there that prefill needs its full speed."""
    problem = h800_and_h20(demand=24.0, search=Search((1,), 1, disaggregation="only", power_caps_fraction=(0.5,)))
    offers = [replace(problem.offers[0], available=2), replace(problem.offers[1], available=1)]
    plan = solve(replace(problem, offers=tuple(offers)))
    assert plan.status == "optimal", plan.conflicts
    assert None in caps_in(plan, "prefill")
    assert caps_in(plan, "decode") <= {200.0, 350.0}


def test_caps_are_not_looked_at_where_watts_do_not_matter() -> None:
    problem = h800_and_h20(objective="max_throughput", budget_usd_per_hour=8.0)
    supply = build_supply(problem)
    assert set(enumerate_candidates(problem, supply).power_cap_fraction) == {1.0}
    limited = replace(problem, limits=Limits(max_power_watts=1000.0))
    assert set(enumerate_candidates(limited, build_supply(limited)).power_cap_fraction) == {0.5, 1.0}


@pytest.mark.slow
def test_more_caps_never_take_more_power() -> None:
    values = []
    for caps in ((), (0.5,), (0.5, 0.714), (0.4, 0.5, 0.6, 0.714, 0.857)):
        problem = h800_and_h20(search=Search((1,), 1, disaggregation="auto", power_caps_fraction=caps))
        plan = solve(problem)
        assert verify(problem, plan) == ()
        values.append(plan.value or 0.0)
    for fewer, more in pairwise(values):
        assert more <= fewer * (1 + 2e-3)
    assert values[-1] < 0.95 * values[0]


@pytest.mark.parametrize("cap", [1 / 3, 0.3333, 0.5000001, 2 / 3, 0.9999])
def test_caps_that_are_no_round_numbers_verify(cap: float) -> None:
    problem = h800_and_h20(search=Search((1,), 1, disaggregation="auto", power_caps_fraction=(cap,)), demand=5.0)
    problem = replace(problem, gpus={slug: replace(gpu, tdp_watts=333.3) for slug, gpu in problem.gpus.items()})
    plan = solve(problem)
    assert plan.status == "optimal"
    assert verify(problem, plan) == ()


def test_idle_gpus_of_a_machine_count_at_the_lowest_cap() -> None:
    """One measured replica on one GPU of a machine of two: 300 W at work and 0.5 x 300 W idle."""
    problem = a_problem(
        objective="min_power",
        offers=[an_offer("a", 2)],
        rows=[measured("a", {"w1": 1.0})],
        gpus=[a_gpu("a", tdp_watts=300.0)],
        search=Search(power_caps_fraction=(0.5, 0.8)),
    )
    plan, uncapped = solve(problem), solve(replace(problem, search=Search()))
    assert plan.value == about(450.0)
    assert [warning for warning in plan.warnings if "1 rented a runs nothing" in warning and "150 W" in warning]
    assert uncapped.value == about(600.0)
    assert uncapped.warnings == ()


def test_measured_rates_are_of_gpus_that_are_not_capped() -> None:
    problem = h800_and_h20(demand=1.0)
    rows = (measured("h800", {"w1": 1234.5}),)
    problem = replace(problem, measured=rows, search=replace(problem.search, disaggregation="off"))
    supply = build_supply(problem)
    found = enumerate_candidates(problem, supply)
    of_row = [supply.pools[pool].gpu == "h800" for pool in found.pool[:, 0]] & (
        found.tensor_parallel.sum(axis=1) == 1
    )
    caps, rates = found.power_cap_fraction[of_row], found.rps[of_row, 0]
    assert set(caps.tolist()) == {0.5, 1.0}
    assert set(rates[caps == 1.0].tolist()) == {1234.5}
    assert (rates[caps < 1.0] < 1000).all()


def test_evidence_says_that_gpus_are_capped() -> None:
    plan = solve(h800_and_h20(demand=1.0))
    capped_replicas = {replica.id for replica in plan.replicas if replica.stages[0].power_cap_watts}
    assert capped_replicas
    for evidence in plan.evidence:
        assert ("GPUs capped to 50% of their TDP" in evidence.detail) == (evidence.replica in capped_replicas)


def test_catalogue_cards_know_what_they_draw() -> None:
    assert capped(resolve_gpu("h100-sxm"), 0.5).tdp_watts == 350.0
