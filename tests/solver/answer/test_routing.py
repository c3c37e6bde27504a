"""The routing of a fixed fleet: by hand, and against a linear program written out on its own."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from sutler.solver import solve
from sutler.solver.answer.routing import Routing, route, without_idle
from sutler.solver.arrays import FloatArray
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import LatencyLimit, Limits, Problem
from tests.builders import (
    APPENDIX_C_MAKESPAN_S,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    measured,
    random_problem,
)
from tests.looped import for_each
from tests.solver.planning_builders import a_fleet, candidate_with, polytope_of


def most_carried(polytope: Polytope, fleet: Allocation) -> float:
    """max lam over request rates r[n, d]: sum_n r = lam f, sum_d r / h <= replicas, provider <= share lam."""
    columns = [
        (n, d)
        for n, c in enumerate(fleet.candidate)
        for d, demand in enumerate(polytope.demands)
        if polytope.candidates.model[c] == demand.model and polytope.rate[c, demand.workload] > 0
    ]
    served = np.zeros((len(polytope.demands), 1 + len(columns)))
    busy = np.zeros((len(fleet.candidate), 1 + len(columns)))
    lopsided = np.zeros((len(polytope.shares), 1 + len(columns)))
    served[:, 0] = [-demand.fraction for demand in polytope.demands]
    lopsided[:, 0] = [-share.fraction for share in polytope.shares]
    for at, (n, d) in enumerate(columns, start=1):
        candidate = fleet.candidate[n]
        served[d, at] = 1.0
        busy[n, at] = 1.0 / polytope.rate[candidate, polytope.demands[d].workload]
        for share in polytope.share_of[candidate]:
            if share >= 0:
                lopsided[share, at] = 1.0
    solved = linprog(
        np.concatenate([[-1.0], np.zeros(len(columns))]),
        A_ub=np.vstack([busy, lopsided]),
        b_ub=np.concatenate([fleet.replicas, np.zeros(len(lopsided))]),
        A_eq=served,
        b_eq=np.zeros(len(served)),
        method="highs",
    )
    return float(-solved.fun)


def busy_replicas(polytope: Polytope, fleet: Allocation, routing: Routing) -> FloatArray:
    """[n] replicas of each candidate that the fractions keep busy at the routing's lam."""
    busy = np.zeros(len(fleet.candidate))
    for row, demand in enumerate(polytope.demands):
        for n, candidate in enumerate(fleet.candidate):
            if routing.fraction[row, n] > 0:
                rate = polytope.rate[candidate, demand.workload]
                busy[n] += routing.lam * demand.fraction * routing.fraction[row, n] / rate
    return busy


def any_fleet(seed: int, **others: Any) -> tuple[Polytope, Allocation]:
    """Replicas that serve every workload of a random market, and some more."""
    problem = replace(random_problem(seed, most_gpus=14), **others)
    polytope = polytope_of(problem, pruned=False)
    draw = Random(seed)
    replicas: dict[int, int] = {}
    for demand in polytope.demands:
        serving = np.flatnonzero(
            (polytope.candidates.model == demand.model) & (polytope.rate[:, demand.workload] > 0)
        )
        for candidate in draw.sample(serving.tolist(), min(len(serving), draw.randint(1, 2))):
            replicas[candidate] = replicas.get(candidate, 0) + draw.randint(1, 2)
    return polytope, a_fleet(polytope, replicas)


def test_appendix_c_is_routed_as_by_hand() -> None:
    """The pair of t2 is faster on w1 and takes nothing else; t1 takes all of w2 and the rest of w1."""
    polytope = polytope_of(appendix_c())
    t1, pair = candidate_with(polytope, "t1"), candidate_with(polytope, "t2:2")
    fleet = a_fleet(polytope, {t1: 1, pair: 1})
    routing = route(polytope, fleet)
    at = {int(candidate): n for n, candidate in enumerate(fleet.candidate)}
    share_of_pair = 2.4 * APPENDIX_C_MAKESPAN_S / 80
    assert routing.lam == pytest.approx(100 / APPENDIX_C_MAKESPAN_S)
    assert routing.fraction[0, at[pair]] == pytest.approx(share_of_pair)
    assert routing.fraction[0, at[t1]] == pytest.approx(1 - share_of_pair)
    assert routing.fraction[1, at[t1]] == pytest.approx(1.0)


def test_two_replicas_split_a_workload_by_their_speed() -> None:
    """3 and 1 req/s carry 4 together, three quarters of it on the faster."""
    problem = a_problem(
        offers=[an_offer("a"), an_offer("b")], rows=[measured("a", {"w1": 3.0}), measured("b", {"w1": 1.0})]
    )
    polytope = polytope_of(problem)
    fleet = a_fleet(polytope, {candidate_with(polytope, "a"): 1, candidate_with(polytope, "b"): 1})
    routing = route(polytope, fleet)
    assert routing.lam == pytest.approx(4.0)
    assert routing.fraction.tolist() == [[pytest.approx(0.75), pytest.approx(0.25)]]


def test_a_fleet_that_leaves_a_workload_out_carries_nothing() -> None:
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a"), an_offer("b")],
        rows=[measured("a", {"w1": 3.0}), measured("b", {"w2": 1.0})],
    )
    polytope = polytope_of(problem)
    assert route(polytope, a_fleet(polytope, {candidate_with(polytope, "a"): 5})).lam == 0.0


def test_a_share_too_small_to_matter_is_routed_elsewhere_and_the_rest_still_sums_to_one() -> None:
    """One request in a hundred million on the slow replica is none."""
    problem = a_problem(
        offers=[an_offer("a"), an_offer("b")], rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1e-8})]
    )
    polytope = polytope_of(problem)
    fleet = a_fleet(polytope, {candidate_with(polytope, "a"): 1, candidate_with(polytope, "b"): 1})
    assert sorted(route(polytope, fleet).fraction[0].tolist()) == [0.0, 1.0]


@for_each("seed", range(50))
def test_a_routing_carries_the_most_that_its_fleet_can(seed: int) -> None:
    polytope, fleet = any_fleet(seed, limits=Limits())
    assert route(polytope, fleet).lam == pytest.approx(most_carried(polytope, fleet), rel=1e-5, abs=1e-9)


@for_each("seed", range(50))
def test_fractions_sum_to_one_and_no_replica_does_more_than_it_can(seed: int) -> None:
    polytope, fleet = any_fleet(seed, limits=Limits(max_utilisation_fraction=0.9))
    routing = route(polytope, fleet)
    if routing.lam == 0:
        assert most_carried(polytope, fleet) == pytest.approx(0.0, abs=1e-9)
        return
    assert (routing.fraction >= 0).all()
    assert routing.fraction.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert (busy_replicas(polytope, fleet, routing) <= fleet.replicas * (1 + 1e-9)).all()


@for_each("seed", range(50))
def test_dropping_idle_replicas_leaves_the_load_and_no_idle_one(seed: int) -> None:
    polytope, fleet = any_fleet(seed)
    kept, routing = without_idle(polytope, fleet)
    assert routing.lam == pytest.approx(route(polytope, fleet).lam, rel=1e-7, abs=1e-9)
    counts = dict(zip(fleet.candidate.tolist(), fleet.replicas.tolist(), strict=True))
    for candidate, replicas in zip(kept.candidate.tolist(), kept.replicas.tolist(), strict=True):
        assert 1 <= replicas <= counts[candidate]


def test_a_replica_that_the_best_routing_leaves_idle_is_dropped() -> None:
    """All of w2 fits on b, which limits the mix to 2 req/s; one a or c of 10 req/s is plenty for w1."""
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", available=3), an_offer("b"), an_offer("c")],
        rows=[measured("a", {"w1": 10.0}), measured("b", {"w2": 1.0}), measured("c", {"w1": 10.0})],
    )
    polytope = polytope_of(problem)
    a, b, c = (candidate_with(polytope, gpu) for gpu in "abc")
    kept, routing = without_idle(polytope, a_fleet(polytope, {a: 3, b: 1, c: 1}))
    assert dict(zip(kept.candidate.tolist(), kept.replicas.tolist(), strict=True)) in ({a: 1, b: 1}, {b: 1, c: 1})
    assert routing.lam == pytest.approx(2.0)


def test_no_provider_gets_more_than_its_share() -> None:
    """q could carry all 9 req/s that it has, but with at most 60 % of them there p's 3 req/s are 40 %: 7.5."""
    problem = a_problem(
        offers=[an_offer("a", provider="p"), an_offer("b", provider="q")],
        rows=[measured("a", {"w1": 3.0}), measured("b", {"w1": 9.0})],
        limits=Limits(max_share_per_provider_fraction=0.6),
    )
    polytope = polytope_of(problem)
    fleet = a_fleet(polytope, {0: 1, 1: 1})
    routing = route(polytope, fleet)
    assert routing.lam == pytest.approx(7.5)
    assert sorted(routing.fraction[0].tolist()) == pytest.approx([0.4, 0.6])


def with_limit(*slo: LatencyLimit, **others: Any) -> Problem:
    return a_problem(
        models=[a_model(a_workload(), slo=slo)],
        offers=[an_offer("a", available=2)],
        rows=[measured("a", {"w1": 10.0})],
        **others,
    )


@pytest.mark.parametrize(
    ("problem", "utilisation"),
    [
        (with_limit(), 1.0),
        (with_limit(LatencyLimit("tpot", 90, 0.1)), 1.0),
        (with_limit(LatencyLimit("ttft", 90, 2.0)), 0.85),
        (with_limit(LatencyLimit("ttft", 50, 2.0), LatencyLimit("tpot", 90, 0.1)), 0.85),
        (with_limit(LatencyLimit("ttft", 90, 2.0), limits=Limits(max_utilisation_fraction=0.7)), 0.7),
        (with_limit(LatencyLimit("ttft", 90, 2.0), limits=Limits(max_utilisation_fraction=0.95)), 0.85),
        (with_limit(limits=Limits(max_utilisation_fraction=0.5)), 0.5),
    ],
    ids=["no limit", "tpot", "ttft", "both", "stated", "stated higher", "stated without limits"],
)
def test_measured_replicas_with_a_limit_on_the_first_token_are_loaded_to_85_percent(
    problem: Problem, utilisation: float
) -> None:
    """Two replicas of 10 req/s: what is left unused keeps queues short."""
    plan = solve(problem)
    assert plan.value == pytest.approx(20 * utilisation)
    assert [replica.utilisation_fraction for replica in plan.replicas] == pytest.approx([utilisation] * 2)


def test_each_model_has_the_utilisation_of_its_own_limits() -> None:
    """8.5 req/s of the model with a TTFT limit, 10 of the other: at one req/s each the mix is held by the first."""
    models = [
        a_model(a_workload(), name="live", slo=(LatencyLimit("ttft", 95, 1.0),)),
        a_model(a_workload(), name="batch"),
    ]
    rows = [measured("a", {"w1": 10.0}, model.name) for model in models]
    plan = solve(a_problem(offers=[an_offer("a", available=2)], models=models, rows=rows))
    assert plan.value == pytest.approx(2 * 8.5)
    loads = {replica.model: replica.utilisation_fraction for replica in plan.replicas}
    assert loads == {"live": pytest.approx(0.85), "batch": pytest.approx(0.85)}
