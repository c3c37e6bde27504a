"""Workloads that are served in fixed proportions: what plans, fleets and routings with them promise, holds."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from benchmarks.load_laws import limited_problem
from sutler.solver import solve
from sutler.solver.answer.routing import balanced, route
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.methods.binary_search import fastest_conceivable
from sutler.solver.methods.exact import as_busy_as_needed
from sutler.solver.plan import Plan
from sutler.solver.polytope.fleet_bounds import FleetBounds
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import LatencyLimit, Objective, Offer, Problem, ServedModel, Workload
from sutler.solver.replanning import holdings_of, standing_of
from sutler.solver.replanning.standing import StandingFleet, capacity_rps, standing_candidates, standing_fleet
from sutler.solver.strategies import greedy, round_robin
from sutler.solver.strategies.comparing import StrategyPlan
from sutler.solver.strategies.rules import spread_evenly
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.mixes import mixes_of
from sutler.solver.verify import verify
from tests.looped import for_each
from tests.solver.planning_builders import a_fleet, integer_optimum, polytope_of
from tests.solver.replanning.builders import with_demand, with_held

REQUESTS = {"chat": (600, 250), "search": (3000, 60), "draft": (100, 700), "paper": (12000, 150)}
DEMANDS = (4.0, 2.0, 1.0, 0.3)
NUMBER = 12  # of random polytopes


def four_workloads(**changes: Any) -> Problem:
    """Few long prompts beside many short ones, whose tokens are to come in time, on two GPU types."""
    workloads = tuple(
        Workload(name, *tokens, demand) for (name, tokens), demand in zip(REQUESTS.items(), DEMANDS, strict=True)
    )
    slo = (LatencyLimit("ttft", 90, 3.0), LatencyLimit("tpot", 90, 0.07))
    model = ServedModel("llama-3.1-8b", load_models()["llama-3.1-8b"], "bf16", "bf16", workloads, slo)
    offers = (Offer("cloud", "a", "l40s", 1, 4, 0.85), Offer("cloud", "b", "h100-sxm", 1, 3, 2.4))
    problem = Problem(Objective("max_throughput"), (model,), offers, gpus=load_gpus(), budget_usd_per_hour=7.0)
    return replace(problem, **changes)


@cache
def polytopes() -> list[Polytope]:
    """Of random problems in which some layout serves a fixed mix."""
    problems = (limited_problem(seed) for seed in range(1000))
    found = (polytope_of(problem) for problem in problems if max(len(m.workloads) for m in problem.models) > 1)
    return list(islice((p for p in found if p.candidates.is_mix(p.problem).any()), NUMBER))


def a_random_fleet(polytope: Polytope, seed: int) -> Allocation:
    draw = np.random.default_rng(seed)
    is_mix = np.flatnonzero(polytope.candidates.is_mix(polytope.problem))
    members = np.union1d(draw.choice(is_mix, 3), draw.choice(len(polytope.candidates), 6))
    return a_fleet(polytope, {int(c): int(draw.integers(1, 4)) for c in members})


def fractions(plan: Plan) -> dict[str, dict[str, float]]:
    """By replica and workload."""
    found: dict[str, dict[str, float]] = {}
    for one in plan.routing:
        for share in one.shares:
            found.setdefault(share.replica, {})[one.workload] = share.fraction
    return found


def optimum(polytope: Polytope) -> float:
    return integer_optimum(polytope, first_goal(polytope), relative_gap=1e-3)


def test_a_plan_of_mixes_serves_their_workloads_in_equal_fractions_within_its_ceilings() -> None:
    problem = four_workloads()
    plan = solve(problem)
    assert verify(problem, plan) == ()
    whole = [own for own in fractions(plan).values() if len(own) == len(REQUESTS)]
    assert whole
    for own in whole:
        assert list(own.values()) == pytest.approx([own["chat"]] * len(own), rel=1e-4)
    assert all(replica.utilisation_fraction <= (replica.max_load_fraction or 0) for replica in plan.replicas)


@pytest.mark.slow
def test_a_mix_that_keeps_its_limits_when_full_is_not_refused_at_a_lighter_load() -> None:
    """In the closed form limits may be kept at a load and missed at a lower one, where step times bend."""
    problem = limited_problem(11)
    assert verify(problem, solve(problem)) == ()


def test_plans_are_better_for_them() -> None:
    polytope = polytope_of(four_workloads())
    without = polytope.without(polytope.candidates.is_mix(polytope.problem))
    assert optimum(polytope) < 1.1 * optimum(without) < 0


@pytest.mark.slow
@for_each("number", [0, 1, 3])
def test_dominance_drops_none_that_is_needed(number: int) -> None:
    problem = polytopes()[number].problem
    assert optimum(polytopes()[number]) == pytest.approx(optimum(polytope_of(problem, pruned=False)), rel=2e-3)


@pytest.mark.slow
@for_each("number", range(5))
def test_whole_replicas_are_worth_no_less_at_the_rates_that_they_need(number: int) -> None:
    polytope = polytopes()[number]
    goal = first_goal(polytope)
    relaxation = solve_relaxation(polytope, goal)
    needed, closer = as_busy_as_needed(polytope, goal, relaxation)
    expected = integer_optimum(polytope, goal, relative_gap=1e-6)
    assert relaxation.bound <= closer.bound <= expected + 1e-5 * abs(expected)
    assert integer_optimum(needed, goal, relative_gap=1e-6) == pytest.approx(expected, rel=1e-4)


def test_relaxations_come_closer_by_them() -> None:
    closer = 0
    for polytope in polytopes():
        goal = first_goal(polytope)
        relaxation = solve_relaxation(polytope, goal)
        needed = as_busy_as_needed(polytope, goal, relaxation)[1]
        closer += needed.bound > relaxation.bound + 1e-6 * abs(relaxation.bound)
    assert closer > NUMBER / 2


@for_each("number", range(NUMBER))
def test_the_best_routing_keeps_proportions_and_carries_what_prices_say(number: int) -> None:
    polytope = polytopes()[number]
    is_mix = polytope.candidates.is_mix(polytope.problem)
    for seed in range(8):
        fleet = a_random_fleet(polytope, seed)
        routing = route(polytope, fleet)
        bounds = FleetBounds(polytope)
        carried = bounds.tighten(fleet.candidate, fleet.replicas.astype(np.float64), np.inf)
        assert routing.lam == pytest.approx(carried, rel=1e-5, abs=1e-9)
        for at in np.flatnonzero(is_mix[fleet.candidate]):
            given = routing.fraction[:, at]
            served = given[given > 0]
            assert served == pytest.approx(np.full(len(served), served.max(initial=0.0)), rel=1e-4)


@for_each("number", range(NUMBER))
def test_no_fleet_carries_more_than_an_inequality_on_it_says(number: int) -> None:
    """Any fleet's prices bound every other one."""
    polytope = polytopes()[number]
    fleets = [a_random_fleet(polytope, seed) for seed in range(6)]
    bounds = FleetBounds(polytope)
    for fleet in fleets:
        bounds.tighten(fleet.candidate, fleet.replicas.astype(np.float64), np.inf)
    earned = np.array(bounds.earned)
    for fleet in fleets:
        limits = earned[:, fleet.candidate] @ fleet.replicas
        assert route(polytope, fleet).lam <= limits.min() * (1 + 1e-6) + 1e-9


def a_mix_alone() -> tuple[Polytope, Allocation]:
    polytope = polytope_of(four_workloads())
    column = len(REQUESTS)
    return polytope, a_fleet(polytope, {int(np.argmax(polytope.rate[:, column])): 2})


def test_a_mix_carries_its_rate_and_no_other_proportions() -> None:
    polytope, fleet = a_mix_alone()
    rate = float(polytope.rate[fleet.candidate[0], len(REQUESTS)])
    fraction = np.ones((len(REQUESTS), 1))
    assert balanced(polytope, fleet, fraction).lam == pytest.approx(2 * rate)
    assert route(polytope, fleet).lam == pytest.approx(2 * rate)
    assert spread_evenly(polytope, fleet).lam == pytest.approx(2 * rate, rel=0.02)
    fraction[0] = 0.5
    assert balanced(polytope, fleet, fraction).lam == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("rival", [greedy.plan, round_robin.plan], ids=["greedy", "round robin"])
def test_rivals_serve_mixes_too(rival: Callable[[Problem, Callable[[], float]], StrategyPlan]) -> None:
    """Where every replica gets what is offered, each is as good as its mix."""
    problem = four_workloads()
    found = rival(problem, lambda: 60.0).plan
    assert verify(problem, found) == ()
    best = solve(problem).throughput_rps or 0.0
    assert 0.8 * best < (found.throughput_rps or 0.0) <= best * 1.02


def test_binary_search_does_not_stop_above_what_a_mix_carries() -> None:
    """On this replica the two workloads carry more together than each in its turn."""
    workloads = (Workload("w0", 6678, 31, 4.55), Workload("w1", 86, 469, 0.40))
    slo = (LatencyLimit("ttft", 90, 0.345), LatencyLimit("tpot", 90, 0.0131))
    model = replace(four_workloads().models[0], workloads=workloads, slo=slo)
    polytope = polytope_of(four_workloads(models=(model,), offers=(Offer("cloud", "b", "h100-sxm", 1, 1, 2.4),)))
    assert fastest_conceivable(polytope) >= -optimum(polytope) * (1 - 1e-6)


def test_shadow_prices_are_those_of_the_rates_as_they_are() -> None:
    """One more of many replicas' requests/s costs a fraction of a replica, however little is asked for."""
    (model,) = four_workloads().models
    seldom = replace(model, workloads=(replace(model.workloads[0], demand=0.2),))
    often = replace(model, workloads=(replace(model.workloads[0], demand=40.0),))
    prices = []
    for one in (seldom, often):
        asked = four_workloads(models=(one,), objective=Objective("min_cost"), budget_usd_per_hour=None)
        offers = tuple(replace(offer, available=40) for offer in asked.offers)
        (demand,) = [b for b in solve(replace(asked, offers=offers)).binding if b.constraint.startswith("demand/")]
        prices.append(demand.shadow_price)
    assert prices[0] == pytest.approx(prices[1], rel=1e-3)


def running(problem: Problem, plan: Plan) -> StandingFleet:
    holdings = holdings_of(plan.rentals)
    held, standing = with_held(problem, holdings), standing_of(plan, holdings)
    fleet = standing_fleet(held, standing, standing_candidates(held, standing))
    assert fleet is not None
    return fleet


def test_a_running_fleet_carries_what_was_planned_and_goes_on_when_demands_change() -> None:
    problem = four_workloads()
    plan, total = solve(problem), sum(DEMANDS)
    planned_rps = plan.throughput_rps or 0.0
    as_planned = running(problem, plan)
    routing = as_planned.as_routed(plan.routing)
    assert capacity_rps(as_planned.under(routing), total) == pytest.approx(planned_rps, rel=0.02)
    changed = running(with_demand(problem, 1.3, of="paper"), plan)
    carried = capacity_rps(changed.under(changed.as_routed(plan.routing)), total + 0.3 * DEMANDS[-1])
    assert 0.7 * planned_rps < carried <= planned_rps * 1.02


def test_a_routing_that_is_in_force_is_judged_by_what_each_replica_really_gets() -> None:
    """Half of the long prompts that one replica gets go to another: no mix any more, and yet within some load."""
    problem = four_workloads()
    plan, total = solve(problem), sum(DEMANDS)
    fleet = running(problem, plan)
    shares = {one.workload: {share.replica: share.fraction for share in one.shares} for one in plan.routing}
    first, second = sorted(shares["paper"], key=lambda name: shares["paper"][name])[-2:]
    moved = {first: shares["paper"][first] / 2, second: shares["paper"][second] + shares["paper"][first] / 2}
    routes = [
        replace(one, shares=tuple(replace(s, fraction=moved.get(s.replica, s.fraction)) for s in one.shares))
        if one.workload == "paper"
        else one
        for one in plan.routing
    ]
    carried = capacity_rps(fleet.under(fleet.as_routed(routes)), total)
    assert 0.3 * (plan.throughput_rps or 0.0) < carried < (plan.throughput_rps or 0.0)


def test_mixes_follow_what_is_offered() -> None:
    model = four_workloads().models[0]
    mixed = mixes_of(model)[len(REQUESTS) :]
    assert mixed.sum(axis=1).tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert mixed[0].tolist() == pytest.approx([demand / sum(DEMANDS) for demand in DEMANDS])
    assert (mixed[1] > 0).tolist() == [True, False, True, False]
    assert (mixed[2] > 0).tolist() == [False, True, False, True]


def test_an_engine_takes_as_many_sequences_as_it_was_started_with_whichever_of_its_requests_it_is_given() -> None:
    """Of long requests alone its memory holds fewer: what is said of the others must not rest on that."""
    problem = four_workloads()
    plan = solve(problem)
    started = tuple(replace(replica, max_batch=MAX_SEQUENCES) for replica in plan.replicas)
    holdings = holdings_of(plan.rentals)
    held, standing = with_held(problem, holdings), standing_of(replace(plan, replicas=started), holdings)
    found = standing_candidates(held, standing)
    alone = found.others.rps[:, : len(DEMANDS)]
    assert ((alone > 0).sum(axis=1) < len(DEMANDS)).any()
    assert set(found.candidates.max_batch.tolist()) | set(found.others.max_batch.tolist()) == {MAX_SEQUENCES}
    fleet = standing_fleet(held, standing, found)
    assert fleet is not None
    for replica in fleet.under(fleet.as_routed(plan.routing)).replicas:
        assert {rate.workload for rate in replica.sustained_rps} == {w.name for w in problem.models[0].workloads}
