"""The running fleet under a routing: what it carries as it is, and under the best one, by hand."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.errors import InvalidProblemError
from sutler.solver.plan import Plan, Route
from sutler.solver.problem import Problem
from sutler.solver.replanning import holdings_of, standing_of
from sutler.solver.replanning.standing import (
    StandingDeployment,
    StandingFleet,
    capacity_rps,
    standing_candidates,
    standing_fleet,
)
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.replanning.builders import a_replica, a_route, a_stage, with_demand, with_held


def two_specialists() -> Problem:
    """GPU a serves 3 rps of w1 or 1 of w2, b the other way round; as many requests of each."""
    return a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a"), an_offer("b")],
        rows=[measured("a", {"w1": 3.0, "w2": 1.0}), measured("b", {"w1": 1.0, "w2": 3.0})],
    )


def fleet_of(problem: Problem, standing: StandingDeployment) -> StandingFleet | None:
    return standing_fleet(problem, standing, standing_candidates(problem, standing))


def running(problem: Problem, plan: Plan) -> StandingFleet:
    """All of a plan's machines, under a problem of which they are no part yet."""
    holdings = holdings_of(plan.rentals)
    on_market = with_held(problem, holdings)
    fleet = fleet_of(on_market, standing_of(plan, holdings))
    assert fleet is not None
    return fleet


def fractions_of(fleet: StandingFleet, routes: tuple[Route, ...]) -> list[list[float]]:
    """[demand][replica]"""
    return [[round(float(f), 9) for f in row] for row in fleet.as_routed(routes).fraction]


def test_under_the_mix_that_was_planned_for_the_routing_carries_what_was_planned() -> None:
    """Each to the one that is fast at it: 6 rps."""
    plan = solve(two_specialists())
    fleet = running(two_specialists(), plan)
    assert plan.throughput_rps == pytest.approx(6.0)
    for routing in (fleet.as_routed(plan.routing), fleet.rerouted()):
        assert capacity_rps(fleet.under(routing), 2.0) == pytest.approx(6.0)


def test_under_another_mix_the_routing_in_force_carries_less_and_the_best_one_more() -> None:
    """w1 three times as frequent: a is busy 3/4 : 3 = 1/4 of a second per request, so 4 rps.

    With a share x of w1 on b, a takes (1 - x)/4 and b 3x/4 + 1/12; they are equal at x = 1/6: 1/(5/24) = 4.8 rps.
    """
    plan = solve(two_specialists())
    fleet = running(with_demand(two_specialists(), 3.0, of="w1"), plan)
    assert capacity_rps(fleet.under(fleet.as_routed(plan.routing)), 4.0) == pytest.approx(4.0)
    best = fleet.rerouted()
    assert capacity_rps(fleet.under(best), 4.0) == pytest.approx(4.8)
    shares = {share.replica: share.fraction for share in fleet.under(best).routing[0].shares}
    assert sorted(shares.values()) == pytest.approx([1 / 6, 5 / 6])


def three_alike() -> tuple[Problem, StandingDeployment]:
    """Replicas of 2 rps each on three held machines."""
    problem = a_problem(offers=[an_offer("a", available=3, held=True)], rows=[measured("a", {"w1": 2.0})])
    (rental,) = solve(replace(problem, budget_usd_per_hour=3.0)).rentals
    return problem, StandingDeployment((rental,), tuple(a_replica(f"chat-{n}", a_stage(0, n)) for n in range(3)), ())


@pytest.mark.parametrize(
    ("given", "expected", "rps"),
    [
        ({"chat_0": 0.5, "chat_1": 0.3, "chat_2": 0.2}, [0.5, 0.3, 0.2], 4.0),
        ({"chat_0": 0.25, "chat_1": 0.25, "chat_9": 0.5}, [0.5, 0.5, 0.0], 4.0),
        ({"chat_2": 0.2, "chat_9": 0.8}, [0.0, 0.0, 1.0], 2.0),
        ({"chat_9": 1.0}, [0.0, 0.0, 0.0], 0.0),
    ],
    ids=["all stand", "one of three is gone", "one stands", "none that took any"],
)
def test_shares_of_replicas_that_are_gone_fall_to_the_others_as_they_stand_to_each_other(
    given: Mapping[str, float], expected: list[float], rps: float
) -> None:
    problem, standing = three_alike()
    fleet = fleet_of(problem, standing)
    assert fleet is not None
    routing = fleet.as_routed([a_route(**given)])
    assert routing.fraction[0].tolist() == pytest.approx(expected)
    assert routing.lam * fleet.polytope.scale_rps == pytest.approx(rps)


def test_a_workload_that_no_route_names_is_not_carried_as_routed() -> None:
    plan = solve(two_specialists())
    fleet = running(two_specialists(), plan)
    assert fleet.as_routed(plan.routing[:1]).lam == 0.0
    assert fleet.rerouted().lam > 0.0


def test_a_share_of_a_replica_that_cannot_serve_the_workload_falls_to_the_others() -> None:
    problem = replace(two_specialists(), measured=(measured("a", {"w1": 3.0}), measured("b", {"w1": 1.0, "w2": 3.0})))
    plan = solve(problem)
    fleet = running(problem, plan)
    names = [replica.id for replica in fleet.replicas]
    everywhere = tuple(Route("chat", w, a_route(chat_0=0.5, chat_1=0.5).shares) for w in ("w1", "w2"))
    serving_w2 = [1.0 if "b" in replica.stages[0].gpu else 0.0 for replica in fleet.replicas]
    assert names == ["chat-0", "chat-1"]
    assert fractions_of(fleet, everywhere) == [[0.5, 0.5], serving_w2]


def test_engines_keep_the_arguments_that_they_were_started_with() -> None:
    problem, standing = three_alike()
    started = replace(
        standing.replicas[1], max_batch=77, engine_args=(("max-num-seqs", 77),), engine_env=(("A", "1"),)
    )
    standing = replace(standing, replicas=(standing.replicas[0], started, standing.replicas[2]))
    fleet = fleet_of(problem, standing)
    assert fleet is not None
    after = fleet.under(fleet.rerouted()).replicas
    assert [(r.max_batch, r.engine_args, r.engine_env) for r in after] == [
        (None, (), ()),
        (77, (("max-num-seqs", 77),), (("A", "1"),)),
        (None, (), ()),
    ]


def test_where_nothing_runs_there_is_no_fleet() -> None:
    problem, standing = three_alike()
    assert fleet_of(problem, replace(standing, replicas=())) is None


def test_replicas_of_a_model_that_is_not_asked_for_any_more_are_left_out() -> None:
    problem, standing = three_alike()
    other = replace(standing.replicas[0], id="code-0", model="code")
    fleet = fleet_of(problem, replace(standing, replicas=(other, *standing.replicas[1:])))
    assert fleet is not None
    assert [replica.id for replica in fleet.replicas] == ["chat-1", "chat-2"]
    assert capacity_rps(fleet.under(fleet.rerouted()), 1.0) == pytest.approx(4.0)


def test_machines_that_the_problem_does_not_hold_are_refused_by_name() -> None:
    problem, standing = three_alike()
    for_rent = replace(problem, offers=(an_offer("a", available=3),))
    with pytest.raises(InvalidProblemError, match=r"standing\.rentals\[0\].*'a-1'.*held=True"):
        fleet_of(for_rent, standing)


def test_of_a_load_no_more_counts_than_there_is_of_it() -> None:
    """Three of 2 rps carry 6 rps: a demand of 4 in full, of 8 three quarters."""
    problem, standing = three_alike()
    for demand_rps, carried_rps in ((4.0, 4.0), (8.0, 6.0)):
        loaded = replace(problem, objective=replace(problem.objective, kind="min_cost"))
        loaded = with_demand(loaded, demand_rps)
        fleet = fleet_of(loaded, standing)
        assert fleet is not None
        under = fleet.under(fleet.rerouted())
        assert under.load_multiple == pytest.approx(6.0 / demand_rps)
        assert capacity_rps(under, demand_rps) == pytest.approx(carried_rps)


def test_replicas_that_stand_are_one_of_each_in_the_order_given() -> None:
    problem, standing = three_alike()
    fleet = fleet_of(problem, standing)
    assert fleet is not None
    assert [replica.id for replica in fleet.replicas] == ["chat-0", "chat-1", "chat-2"]
    assert np.array_equal(fleet.allocation.replicas, [1, 1, 1])
    assert all(placed.stays for placed in fleet.placement.replicas)
