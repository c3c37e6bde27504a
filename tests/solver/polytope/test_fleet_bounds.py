"""Inequalities on the fleet: none cuts off what a fleet can carry, and the right ones leave nothing out."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from sutler.solver.candidates.enumerate import AGGREGATED, DECODE, PREFILL
from sutler.solver.polytope.column_generation import FleetRow
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.linear import solve_lp, solve_milp
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Limits, ObjectiveKind, Problem, Search
from tests.builders import (
    OBJECTIVES,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    measured,
    random_problem,
    random_roles_problem,
)
from tests.looped import for_each
from tests.solver.planning_builders import a_fleet, candidate_with, integer_optimum, polytope_of

TOLERANCE = 1e-6


def carried_by(polytope: Polytope, fleet: Allocation) -> float:
    """What a fleet carries: max lam with sum_c h z = lam f over what serves, sum_w z <= y, on every network no more
    decoded than prefilled, and no more with a member of a limited share than that of lam; one dense LP."""
    pairs = [
        (n, d)
        for n, c in enumerate(fleet.candidate)
        for d, demand in enumerate(polytope.demands)
        if polytope.candidates.model[c] == demand.model
    ]
    served = np.zeros((len(polytope.demands), 1 + len(pairs)))
    busy = np.zeros((len(fleet.candidate), 1 + len(pairs)))
    served[:, 0] = [-demand.fraction for demand in polytope.demands]
    candidates = polytope.candidates
    networks = [polytope.supply.pools[int(pool)].network for pool in candidates.pool[fleet.candidate, 0]]
    names = sorted({network for network in networks if network is not None})
    handed = np.zeros((len(polytope.demands) * len(names), 1 + len(pairs)))
    lopsided = np.zeros((len(polytope.shares), 1 + len(pairs)))
    lopsided[:, 0] = [-share.fraction for share in polytope.shares]
    for column, (n, d) in enumerate(pairs):
        rate, role = (
            polytope.rate[fleet.candidate[n], polytope.demands[d].workload],
            candidates.role[fleet.candidate[n]],
        )
        busy[n, 1 + column] = 1.0
        for share in polytope.share_of[fleet.candidate[n]].tolist():
            if share >= 0:
                lopsided[share, 1 + column] = rate
        if role != PREFILL:
            served[d, 1 + column] = rate
        if role != AGGREGATED:
            handed[d * len(names) + names.index(str(networks[n])), 1 + column] = -rate if role == PREFILL else rate
    cost = np.zeros(1 + len(pairs))
    cost[0] = -1.0
    solved = linprog(
        cost,
        A_ub=np.vstack([busy, handed, lopsided]),
        b_ub=np.append(fleet.replicas, np.zeros(len(handed) + len(lopsided))),
        A_eq=served,
        b_eq=np.zeros(len(served)),
        method="highs",
    )
    return float(-solved.fun)


def any_fleet(polytope: Polytope, draw: Random) -> Allocation:
    """Some replicas of some candidates, whatever they cost."""
    chosen = draw.sample(range(len(polytope.candidates)), draw.randint(1, min(4, len(polytope.candidates))))
    return a_fleet(polytope, {c: draw.randint(1, 3) for c in chosen})


def allowed_by(bounds: FleetBounds, fleet: Allocation) -> float:
    """The largest lam that every inequality allows the fleet."""
    return min(float(earned[fleet.candidate] @ fleet.replicas) for earned in bounds.earned)


def tighten(bounds: FleetBounds, fleet: Allocation, lam: float = np.inf) -> float:
    return bounds.tighten(fleet.candidate, fleet.replicas.astype(np.float64), lam)


def two_workloads() -> Problem:
    """a serves 2 of w1 or 1 of w2 a second, b 1 of either; the mix is half and half."""
    return a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", available=3), an_offer("b", available=3)],
        rows=[measured("a", {"w1": 2.0, "w2": 1.0}), measured("b", {"w1": 1.0, "w2": 1.0})],
        budget_usd_per_hour=3.0,
    )


def test_one_of_each_carries_three_requests_by_hand() -> None:
    """lam/2 of each workload. a on w1 alone gives 2, b on w2 alone gives 1: with t of a's time on w2,
    2 (1 - t) = 1 + t, so t = 1/3 and lam = 8/3. Prices 2/3 and 4/3 prove it: a earns 4/3, b earns 4/3."""
    polytope = polytope_of(two_workloads())
    fleet = a_fleet(polytope, {candidate_with(polytope, "a"): 1, candidate_with(polytope, "b"): 1})
    bounds = FleetBounds(polytope)
    assert tighten(bounds, fleet) == pytest.approx(8 / 3)
    (earned,) = bounds.earned
    assert earned == pytest.approx([4 / 3, 4 / 3])


def test_a_fleet_that_carries_what_it_claims_teaches_nothing() -> None:
    polytope = polytope_of(two_workloads())
    fleet = a_fleet(polytope, {candidate_with(polytope, "a"): 1, candidate_with(polytope, "b"): 1})
    bounds = FleetBounds(polytope)
    tighten(bounds, fleet, 8 / 3)
    assert bounds.rows == []


def test_a_fleet_that_misses_a_workload_carries_nothing() -> None:
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a"), an_offer("b")],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 1.0, "w2": 1.0})],
    )
    polytope = polytope_of(problem)
    fleet = a_fleet(polytope, {candidate_with(polytope, "a"): 3})
    bounds = FleetBounds(polytope)
    assert tighten(bounds, fleet) == 0.0
    assert allowed_by(bounds, fleet) == pytest.approx(0.0, abs=1e-12)


def paired_fleet(polytope: Polytope, draw: Random) -> Allocation:
    """Some replicas, most of them such that prefill meets decode."""
    role = polytope.candidates.role
    chosen = {draw.randrange(len(role)) for _ in range(2)}
    for each in (PREFILL, DECODE):
        chosen |= set(draw.sample(np.flatnonzero(role == each).tolist(), min(3, int((role == each).sum()))))
    return a_fleet(polytope, {c: draw.randint(1, 3) for c in chosen})


def with_roles(seed: int, objective: ObjectiveKind = "max_throughput") -> Polytope | None:
    """None where nothing can run."""
    problem = random_roles_problem(seed, objective, most_gpus=14)
    polytope = polytope_of(problem)
    return polytope if len(polytope.candidates) else None


@for_each("seed", range(20))
def test_no_inequality_denies_a_fleet_with_roles_what_it_carries(seed: int) -> None:
    polytope = with_roles(seed)
    if polytope is None:
        return
    draw = Random(seed)
    bounds = FleetBounds(polytope)
    bounds.add_relaxed(solve_relaxation(polytope, polytope.goal_throughput()))
    fleets = [paired_fleet(polytope, draw) for _ in range(8)]
    for fleet in fleets[:3]:
        tighten(bounds, fleet)
    for fleet in fleets:
        assert carried_by(polytope, fleet) <= allowed_by(bounds, fleet) + TOLERANCE


@for_each("seed", range(20))
def test_the_own_inequality_of_a_fleet_with_roles_says_exactly_what_it_carries(seed: int) -> None:
    polytope = with_roles(seed)
    if polytope is None:
        return
    fleet = paired_fleet(polytope, Random(seed))
    bounds = FleetBounds(polytope)
    expected = pytest.approx(carried_by(polytope, fleet), rel=TOLERANCE, abs=TOLERANCE)
    assert tighten(bounds, fleet) == expected
    assert allowed_by(bounds, fleet) == expected


def test_a_pair_and_a_replica_for_whole_requests_by_hand() -> None:
    """a prefills 4 and b decodes 3 a second: 3, and c serves 1: the price of a prompt is 0, since decode is short."""
    site: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
    rows = [
        measured("a", {"w1": 4.0}, role="prefill"),
        measured("b", {"w1": 3.0}, role="decode"),
        measured("c", {"w1": 1.0}),
    ]
    offers = [an_offer(gpu, **site) for gpu in "abc"]
    polytope = polytope_of(a_problem(offers=offers, rows=rows, search=Search(disaggregation="auto")))
    a, b, c = (candidate_with(polytope, gpu) for gpu in "abc")
    bounds = FleetBounds(polytope)
    assert tighten(bounds, a_fleet(polytope, {a: 1, b: 1, c: 1})) == pytest.approx(4.0)
    (earned,) = bounds.earned
    assert earned[[a, b, c]] == pytest.approx([0.0, 3.0, 1.0])
    bounds.rows.clear()
    assert tighten(bounds, a_fleet(polytope, {b: 2, c: 1})) == pytest.approx(1.0)  # nothing prefills
    assert tighten(bounds, a_fleet(polytope, {a: 1, b: 2})) == pytest.approx(4.0)


@for_each("seed", range(20))
def test_no_inequality_denies_a_fleet_what_it_carries(seed: int) -> None:
    polytope = polytope_of(random_problem(seed, most_gpus=14))
    draw = Random(seed)
    bounds = FleetBounds(polytope)
    bounds.add_relaxed(solve_relaxation(polytope, polytope.goal_throughput()))
    fleets = [any_fleet(polytope, draw) for _ in range(8)]
    for fleet in fleets[:3]:
        tighten(bounds, fleet)
    for fleet in fleets:
        assert carried_by(polytope, fleet) <= allowed_by(bounds, fleet) + TOLERANCE


@for_each("seed", range(20))
def test_where_no_more_is_asked_for_no_inequality_denies_a_fleet_that_much(seed: int) -> None:
    """Replicas count for no more of a workload than there is: what fleets carry up to there is as exact as before."""
    polytope, draw = polytope_of(random_problem(seed, most_gpus=14)), Random(seed)
    fleets = [any_fleet(polytope, draw) for _ in range(8)]
    carried = [carried_by(polytope, fleet) for fleet in fleets]
    bounds = FleetBounds(polytope, most_lam=max(float(np.median(carried)), TOLERANCE))
    bounds.add_relaxed(solve_relaxation(polytope, polytope.goal_throughput()))
    for fleet, own in zip(fleets, carried, strict=True):
        found = tighten(bounds, fleet, bounds.most_lam)
        assert min(own, bounds.most_lam) - TOLERANCE <= found <= own + TOLERANCE
    for fleet, own in zip(fleets, carried, strict=True):
        assert min(own, bounds.most_lam) <= allowed_by(bounds, fleet) * (1 + TOLERANCE) + TOLERANCE


@for_each("seed", range(20))
def test_a_fleets_own_inequality_says_exactly_what_it_carries(seed: int) -> None:
    polytope = polytope_of(random_problem(seed, most_gpus=14))
    fleet = any_fleet(polytope, Random(seed))
    bounds = FleetBounds(polytope)
    expected = pytest.approx(carried_by(polytope, fleet), rel=TOLERANCE, abs=TOLERANCE)
    assert tighten(bounds, fleet) == expected
    assert allowed_by(bounds, fleet) == expected


@for_each("seed", range(0, 60, 2))
def test_priced_by_the_relaxation_nothing_of_its_bound_is_lost(seed: int) -> None:
    """One model: the LP over the fleet alone is no looser than the whole relaxation, and no plan is cut off."""
    draw = Random(seed)
    problem = random_problem(draw.randrange(10**6), most_gpus=14)
    first_model = problem.models[0]
    rows = tuple(row for row in problem.measured if row.model == first_model.name)
    polytope = polytope_of(replace(problem, models=(first_model,), measured=rows, limits=Limits()))
    goal = polytope.goal_throughput()
    relaxation = solve_relaxation(polytope, goal)
    bounds = FleetBounds(polytope)
    bounds.add_relaxed(relaxation)
    program = bounds.program(goal, np.arange(len(polytope.candidates)))
    relaxed = solve_lp(replace(program, integer=np.zeros_like(program.integer))).objective
    assert relaxed >= relaxation.objective * (1 + TOLERANCE) - TOLERANCE
    assert relaxed <= integer_optimum(polytope, goal) * (1 - TOLERANCE) + TOLERANCE


def optimum_without_routing(polytope: Polytope, objective: ObjectiveKind, *, thinned: bool) -> float:
    """Least value of the goal by fleet inequalities alone, added until the best fleet carries what it claims."""
    goal = first_goal(polytope)
    bounds = FleetBounds(polytope)
    relaxation = solve_relaxation(polytope, goal)
    if not np.isfinite(relaxation.objective):
        return np.inf
    bounds.add_relaxed(relaxation)
    everything = np.arange(len(polytope.candidates))
    for _ in range(100):
        chosen = bounds.undominated(everything) if thinned else everything
        solution = solve_milp(bounds.program(goal, chosen), relative_gap=1e-9, time_limit_s=20.0)
        if solution.x is None:
            return np.inf
        replicas = np.maximum(solution.x[1 + len(polytope.cost_rent) :], 0.0)
        claimed = float(solution.x[0])
        if (
            bounds.tighten(chosen[replicas > 0], replicas[replicas > 0], claimed)
            >= claimed * (1 - TOLERANCE) - TOLERANCE
        ):
            return solution.objective
    raise AssertionError("no end to the inequalities")


@pytest.mark.parametrize("thinned", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 40, 10))
def test_inequalities_in_place_of_routing_lead_to_the_same_optimum(
    seed: int, objective: ObjectiveKind, thinned: bool
) -> None:
    problem = random_problem(seed, objective, most_gpus=14)
    polytope = polytope_of(problem)
    expected = integer_optimum(polytope, first_goal(polytope))
    found = optimum_without_routing(polytope, objective, thinned=thinned)
    assert found == pytest.approx(expected, rel=1e-5, abs=TOLERANCE)


@pytest.mark.parametrize("thinned", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(3))
def test_inequalities_in_place_of_handing_over_lead_to_the_same_optimum(
    seed: int, objective: ObjectiveKind, thinned: bool
) -> None:
    polytope = with_roles(seed, objective)
    if polytope is None:
        return
    expected = integer_optimum(polytope, first_goal(polytope))
    found = optimum_without_routing(polytope, objective, thinned=thinned)
    assert found == pytest.approx(expected, rel=1e-5, abs=TOLERANCE)


def test_of_two_candidates_on_equal_gpus_the_one_that_earns_more_is_kept() -> None:
    """TP 2 and PP 2 suit different workloads, but at equal prices TP 2 earns 3 and PP 2 only 2."""
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", 2, price=2.0, available=3)],
        rows=[measured("a:2", {"w1": 3.0, "w2": 1.0}), measured(["a", "a"], {"w1": 1.0, "w2": 2.0})],
        limits=Limits(max_power_watts=1e6),
    )
    polytope = polytope_of(problem)
    bounds = FleetBounds(polytope, [FleetRow(polytope.rate.max(axis=1))])
    pair = candidate_with(polytope, "a:2")
    assert bounds.undominated(np.arange(2)).tolist() == [pair]
    bounds.rows.append(FleetRow(polytope.rate[:, 1]))
    assert len(bounds.undominated(np.arange(2))) == 2
