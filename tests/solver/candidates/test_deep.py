"""Deep pipelines that are generated instead of listed, against listing them."""

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
import pytest

from sutler.solver.candidates import shapes
from sutler.solver.candidates.deep import covers, deep_searches
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.preparation import enumerated, prepare, scaled_to_one
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.problem import ObjectiveKind, Problem, Search, SolveOptions
from tests.builders import a_model, a_problem, a_workload, an_offer, random_estimated_problem
from tests.looped import for_each

OBJECTIVES: Final[tuple[ObjectiveKind, ...]] = ("max_throughput", "min_cost", "min_power", "min_makespan")
WARNING: Final = "too many to be listed"


def listing(monkeypatch: pytest.MonkeyPatch, most: float) -> None:
    """Lists no more than so many pipelines across machines from now on."""
    monkeypatch.setattr(shapes, "MOST_LISTED", most)


def on_one_site(*cards: str, stages: int, machines: int = 4, gpus: int = 1, objective: ObjectiveKind) -> Problem:
    """A 70B model and one networked site of such cards, on an engine that runs any layout."""
    network: dict[str, Any] = {"site": "s", "inter_machine_gb_per_s": 12.5, "divisible": True}
    return a_problem(
        objective=objective,
        options=SolveOptions(alternatives=False),
        models=[a_model(a_workload("w", demand=0.2), spec=load_models()["llama-3-70b"], engine="any-layout")],
        offers=[an_offer(card, gpus, available=machines, offer_id=card, **network) for card in cards],
        gpus=[load_gpus()[card] for card in cards],
        budget_usd_per_hour=60.0,
        search=Search(max_pipeline_stages=stages),
        measured_only=False,
    )


@for_each("seed", range(200))
def test_the_cheapest_stages_that_hold_all_layers_are_found(seed: int) -> None:
    draw = np.random.default_rng(seed)
    types, depth, layers = int(draw.integers(1, 6)), int(draw.integers(1, 4)), int(draw.integers(1, 10))
    holds, price = draw.integers(0, 6, size=(types, 4)), draw.uniform(0, 3, types)
    found = covers(holds, price, layers, depth).tolist()
    assert found == sorted(map(sorted, found))
    for column in holds.T:
        every = [
            [*chosen]
            for chosen in combinations_with_replacement(range(types), depth)
            if column[[*chosen]].sum() >= layers and (column[[*chosen]] > 0).all()
        ]
        if every:
            least = min(price[one].sum() for one in every)
            assert any(one in every and price[one].sum() <= least + 1e-9 for one in found)


def test_few_pipelines_are_all_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left out where they are many is counted: all of four stages, of four types."""
    problem = on_one_site("l40s", "rtx-4090", stages=4, gpus=2, objective="max_throughput")
    supply = build_supply(problem)
    assert deep_searches(problem, supply) == []
    listing(monkeypatch, 10 + 20)
    (search,) = deep_searches(problem, supply)
    assert len(search.pipelines.stages) == 4
    assert (search.pipelines.first, search.pipelines.last, search.pipelines.count) == (4, 4, 35)


def relaxed(problem: Problem) -> float:
    """What the relaxation says at best; nan where nothing is served."""
    polytope = prepare(problem)
    scaled = scaled_to_one(polytope) if polytope.servable().all() else None
    if scaled is None:
        return np.nan
    goal = first_goal(scaled)
    return solve_relaxation(scaled, goal).objective * (scaled.scale_rps if goal.lam_weight else 1.0)


@for_each("seed", range(24), quick=2)
def test_relaxations_lose_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Random markets, limits and measurements. Nearly all come to the same to the last digits; of 194 such cases one
    was worse, by 0.34 %: latency limits decided there, which prices do not know."""
    problem = random_estimated_problem(seed, OBJECTIVES[seed % 4])
    listing(monkeypatch, np.inf)
    every = relaxed(problem)
    listing(monkeypatch, 0)
    some = relaxed(problem)
    assert (some, every) == pytest.approx((every, every), nan_ok=True, rel=5e-3)


def plans(monkeypatch: pytest.MonkeyPatch, problem: Problem) -> tuple[Plan, Plan]:
    """The plan where pipelines are listed, and the one where they are generated; both are verified."""
    listing(monkeypatch, np.inf)
    every = solve(problem)
    listing(monkeypatch, 0)
    assert enumerated(problem).unlisted
    return every, solve(problem)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plans_are_as_good_and_say_what_the_proof_is_of(
    monkeypatch: pytest.MonkeyPatch, objective: ObjectiveKind
) -> None:
    problem = on_one_site("l40s", "rtx-4090", "a100-pcie-80gb", stages=3, gpus=2, objective=objective)
    every, some = plans(monkeypatch, problem)
    assert some.value == pytest.approx(every.value, rel=2 * problem.options.relative_gap)
    assert any(WARNING in one for one in some.warnings)
    assert not any(WARNING in one for one in every.warnings)


def test_a_model_that_only_deep_pipelines_hold_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """70B in 16 bits is more than six cards of 24 GB, one to a machine: nothing that is listed carries anything."""
    problem = on_one_site("rtx-4090", "rtx-3090", stages=8, machines=12, objective="max_throughput")
    _, some = plans(monkeypatch, problem)
    assert some.value
    assert {len(replica.stages) for replica in some.replicas} <= {7, 8}


def test_least_replicas_count_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = on_one_site("l40s", "rtx-4090", stages=4, machines=12, objective="min_cost")
    models = [replace(model, min_replicas=2) for model in problem.models]
    every, some = plans(monkeypatch, replace(problem, models=tuple(models)))
    assert len(some.replicas) >= 2
    assert some.value == pytest.approx(every.value, rel=2 * problem.options.relative_gap)
