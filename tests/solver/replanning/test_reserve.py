"""A running fleet that has lost its reserve is short, and gets a new one."""

from dataclasses import replace

from sutler.solver import solve
from sutler.solver.problem import Problem, Resilience
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.planning_builders import about
from tests.solver.replanning.builders import considered, machines_of, without


def three_providers() -> Problem:
    """10 requests/s of which all have to be carried when any one provider is gone; a serves 5 for 2, 3 or 4 $/h."""
    offers = [
        an_offer("a", price=price, available=6, provider=name, offer_id=name)
        for name, price in (("p", 2.0), ("q", 3.0), ("r", 4.0))
    ]
    return a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 5.0})],
        objective="min_cost",
        models=[a_model(a_workload(demand=10.0))],
        resilience=Resilience(("provider",), 1.0),
    )


def test_what_has_lost_its_reserve_is_short_and_gets_another() -> None:
    problem = three_providers()
    plan = solve(problem)
    assert machines_of(plan) == {"p": 1, "q": 1, "r": 1}
    left = [offer for offer in problem.offers if offer.offer_id != "r"]
    found = considered(problem, plan, holdings=without(plan, {"r": 1}), market=left)
    assert found.keep.load_multiple == about(1.0)
    assert not found.keep.carries
    option = found.option("refleet")
    assert option is not None
    assert option.carries
    assert machines_of(option.plan) == {"p": 2, "q": 2}


def test_what_still_survives_is_kept() -> None:
    problem = three_providers()
    plan = solve(problem)
    found = considered(problem, plan, is_urgent=False, least_net_usd=1.0)
    assert found.keep.carries
    assert [option.kind for option in found.options] == ["keep"]


def test_where_no_reserve_is_for_rent_what_runs_is_kept_and_why_is_said() -> None:
    problem = three_providers()
    plan = solve(problem)
    found = considered(problem, plan, holdings=without(plan, {"q": 1, "r": 1}), market=problem.offers[:1])
    assert not any(option.carries for option in found.options)
    assert [conflict.constraint for conflict in found.conflicts] == ["resilience/load_fraction"]


def test_a_fleet_without_anything_to_survive_is_judged_by_its_load_alone() -> None:
    problem = replace(three_providers(), resilience=Resilience())
    plan = solve(problem)
    found = considered(problem, plan, is_urgent=False, least_net_usd=1.0)
    assert found.keep.carries
