"""The options of a fleet that runs, in numbers that fit on paper."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sutler.solver import solve
from sutler.solver.errors import InvalidProblemError
from sutler.solver.plan import Plan
from sutler.solver.problem import ObjectiveKind, Offer, Problem
from sutler.solver.progress import Progress
from sutler.solver.replanning import Consideration, Switching, consider, holdings_of, standing_of
from tests.builders import a_gpu, a_model, a_problem, a_workload, an_offer, measured
from tests.solver.replanning.builders import FREE, considered, machines_of, with_demand, with_held, without


def a_case(
    *offers: Offer,
    demand_rps: float = 2.0,
    objective: ObjectiveKind = "min_cost",
    headroom_fraction: float = 0.0,
    budget_usd_per_hour: float | None = None,
) -> Problem:
    """GPUs a, b and c serve 2 rps each, whatever they cost."""
    return a_problem(
        objective=objective,
        headroom_fraction=headroom_fraction,
        models=[a_model(a_workload(demand=demand_rps))],
        offers=offers,
        rows=[measured(gpu, {"w1": 2.0}) for gpu in "abc"],
        gpus=[a_gpu("a", tdp_watts=700.0), a_gpu("b", tdp_watts=350.0), a_gpu("c"), a_gpu("d")],
        budget_usd_per_hour=budget_usd_per_hour,
    )


def a_fleet(problem: Problem) -> Plan:
    plan = solve(problem)
    assert plan.rentals
    return plan


def test_where_nothing_has_changed_keeping_is_all_there_is() -> None:
    problem = a_case(an_offer("a", price=4.0, available=3), demand_rps=3.0)
    found = considered(problem, a_fleet(problem), switching=Switching(startup_s=60.0, drain_s=60.0))
    assert [option.kind for option in found.options] == ["keep"]
    keep = found.keep
    assert (keep.cost_usd_per_hour, keep.capacity_rps, keep.load_multiple) == pytest.approx((8.0, 3.0, 4 / 3))
    assert (keep.net_usd, keep.benefit_usd_per_hour, keep.break_even_s) == (0.0, 0.0, 0.0)
    assert keep.carries
    assert keep.is_valid


@pytest.mark.parametrize(("price", "net_usd"), [(3.3, None), (3.2, 0.08), (2.0, 1.4)])
def test_the_same_machine_for_less_is_taken_where_it_saves_more_than_the_change_costs(
    price: float, net_usd: float | None
) -> None:
    """For an hour it saves 4 - p; both are paid for six minutes: 0.1 p + 0.4. Even at p = 3.6/1.1 = 3.27 $/h."""
    problem = a_case(an_offer("a", price=4.0))
    cheaper = [an_offer("a", price=price, offer_id="cheaper")]
    found = considered(problem, a_fleet(problem), market=cheaper, switching=Switching(startup_s=360.0))
    if net_usd is None:
        assert [option.kind for option in found.options] == ["keep"]
        assert found.most_net_usd == pytest.approx(0.0, abs=1e-9)
        return
    option = found.options[-1]
    assert (option.kind, machines_of(option.plan)) == ("refleet", {"cheaper": 1})
    assert option.benefit_usd_per_hour == pytest.approx(4.0 - price)
    assert option.change.usd == pytest.approx(0.4 + 0.1 * price)
    assert option.net_usd == pytest.approx(net_usd)
    assert option.break_even_s == pytest.approx(3600 * (0.4 + 0.1 * price) / (4 - price))
    assert found.most_net_usd == pytest.approx(net_usd)


@pytest.mark.parametrize(("horizon_s", "is_taken"), [(720.0, False), (3600.0, True)])
def test_the_longer_a_saving_lasts_the_more_a_change_may_cost(horizon_s: float, is_taken: bool) -> None:
    """From 4 to 2 $/h: the change costs 0.60 $, which 2 $/h pay back within 18 minutes."""
    problem = a_case(an_offer("a", price=4.0))
    cheaper = [an_offer("a", price=2.0, offer_id="cheaper")]
    switching = Switching(startup_s=360.0, horizon_s=horizon_s)
    found = considered(problem, a_fleet(problem), market=cheaper, switching=switching)
    assert (found.option("refleet") is not None) == is_taken


def test_a_change_that_has_to_pay_thrice_is_worth_that_much_less() -> None:
    """It saves 2 $ and costs 0.60 $."""
    problem = a_case(an_offer("a", price=4.0))
    cheaper = [an_offer("a", price=2.0, offer_id="cheaper")]
    switching = Switching(startup_s=360.0, weight=3.0)
    option = considered(problem, a_fleet(problem), market=cheaper, switching=switching).options[-1]
    assert option.change.usd == pytest.approx(0.6)
    assert option.net_usd == pytest.approx(2.0 - 3 * 0.6)


@pytest.mark.parametrize(("needed_weight", "machines"), [(1.0, {"cheap": 3}), (10.0, {"a-1": 2, "cheap": 1})])
def test_what_is_added_to_a_load_that_is_not_carried_is_no_reason_to_change_the_rest(
    needed_weight: float, machines: dict[str, int]
) -> None:
    """Each replacement saves 2 $ in the hour and costs 0.60 $, or counts as 6 $."""
    problem = a_case(an_offer("a", price=4.0, available=2), demand_rps=4.0)
    plan = a_fleet(problem)
    grown = with_demand(problem, 1.5)
    switching = Switching(startup_s=360.0, needed_weight=needed_weight)
    market = [an_offer("a", price=2.0, offer_id="cheap", available=3)]
    found = considered(grown, plan, market=market, switching=switching)
    assert not found.keep.carries
    assert machines_of(found.options[-1].plan) == machines


def test_a_lease_that_outlasts_the_horizon_has_to_be_paid_off_too() -> None:
    """2 $/h for the second of two hours at least: nothing is left of the 2 $ that the first one saves."""
    problem = a_case(an_offer("a", price=4.0))
    cheaper = [an_offer("a", price=2.0, offer_id="cheaper")]
    switching = Switching(startup_s=36.0, min_rental_s=7200.0)
    found = considered(problem, a_fleet(problem), market=cheaper, switching=switching)
    assert [option.kind for option in found.options] == ["keep"]


def test_as_many_machines_are_replaced_as_are_cheaper_and_the_others_stay() -> None:
    """Three at 4 $/h, one at 1 $/h for rent: it replaces one of them."""
    problem = a_case(an_offer("a", price=4.0, available=3), demand_rps=6.0)
    plan = a_fleet(problem)
    option = considered(problem, plan, market=[an_offer("b", price=1.0)], switching=FREE).options[-1]
    assert machines_of(option.plan) == {"a-1": 2, "b-1": 1}
    assert (option.change.started, option.change.stopped, option.change.restarted) == (1, 1, 0)
    assert option.plan is not None
    assert sorted(replica.id for replica in option.plan.replicas)[-1] == "chat-3"


def test_a_lost_machine_takes_what_it_carried_and_its_name_is_not_used_again() -> None:
    problem = a_case(an_offer("a", price=4.0, available=3), demand_rps=6.0)
    plan = a_fleet(problem)
    market = [an_offer("b", price=5.0, available=2)]
    found = considered(problem, plan, holdings=without(plan, {"a-1": 1}), market=market)
    assert found.keep.capacity_rps == pytest.approx(4.0)
    assert found.keep.load_multiple == pytest.approx(2 / 3)
    assert not found.keep.carries
    option = found.options[-1]
    assert (option.kind, option.carries, machines_of(option.plan)) == ("refleet", True, {"a-1": 2, "b-1": 1})
    assert option.plan is not None
    assert sorted(replica.id for replica in option.plan.replicas) == ["chat-0", "chat-1", "chat-3"]


def test_requests_that_are_not_served_are_worth_ten_times_what_capacity_costs() -> None:
    """The third machine serves 2 rps for 5 $/h: 2 x 1.5 x 10 - 5 = 25 $/h."""
    problem = a_case(an_offer("a", price=4.0, available=3), demand_rps=6.0)
    plan = a_fleet(problem)
    market = [an_offer("b", price=5.0)]
    switching = Switching(usd_per_rps=1.5)
    found = considered(problem, plan, holdings=without(plan, {"a-1": 1}), market=market, switching=switching)
    assert found.options[-1].benefit_usd_per_hour == pytest.approx(25.0)
    assert found.most_net_usd == float("inf")


def test_where_everything_is_lost_a_fleet_is_made_anew() -> None:
    problem = a_case(an_offer("a", price=4.0))
    found = considered(problem, a_fleet(problem), holdings=(), market=[an_offer("b", price=5.0)])
    assert (found.keep.plan, found.keep.capacity_rps, found.keep.carries) == (None, 0.0, False)
    assert [option.kind for option in found.options] == ["keep", "refleet"]
    assert (found.options[1].change.started, found.options[1].change.stopped) == (1, 0)
    assert (
        [replica.id for replica in found.options[1].plan.replicas] == ["chat-1"] if found.options[1].plan else False
    )


def test_where_nothing_that_is_left_serves_the_workload_it_is_said_why() -> None:
    problem = a_case(an_offer("a", price=4.0))
    found = considered(problem, a_fleet(problem), holdings=(), market=[an_offer("d")])
    assert [option.kind for option in found.options] == ["keep"]
    assert found.most_net_usd == float("-inf")
    assert found.searched
    assert [conflict.constraint for conflict in found.conflicts] == ["demand/chat/w1"]


def test_where_nothing_is_held_and_nothing_is_for_rent_it_is_said() -> None:
    problem = a_case(an_offer("a", price=4.0))
    empty = replace(problem, offers=())
    found = consider(Consideration(empty, standing_of(a_fleet(problem), ()), FREE))
    assert [(option.kind, option.plan, option.carries) for option in found.options] == [("keep", None, False)]
    assert [conflict.constraint for conflict in found.conflicts] == ["offers"]


def test_a_load_that_no_fleet_carries_is_explained_and_what_runs_is_kept() -> None:
    """One machine of 2 rps is all there is, for a load of 3."""
    problem = a_case(an_offer("a", price=4.0))
    found = considered(with_demand(problem, 1.5), a_fleet(problem))
    assert [option.kind for option in found.options] == ["keep"]
    assert found.keep.load_multiple == pytest.approx(2 / 3)
    assert found.most_net_usd == float("-inf")
    assert found.conflicts
    assert all(conflict.remedy for conflict in found.conflicts)


def test_where_no_fleet_has_headroom_one_that_just_carries_the_load_is_found() -> None:
    """3.9 rps with a quarter to spare would take 4.9; the two machines that there are carry 4."""
    problem = a_case(an_offer("a", price=4.0, available=2), headroom_fraction=0.25, demand_rps=1.6)
    plan = a_fleet(problem)
    assert machines_of(plan) == {"a-1": 1}
    found = considered(with_demand(problem, 3.9 / 1.6), plan)
    assert not found.keep.carries
    option = found.options[-1]
    assert (option.kind, option.carries, machines_of(option.plan)) == ("refleet", True, {"a-1": 2})
    assert option.load_multiple == pytest.approx(4 / 3.9)
    assert found.conflicts == ()


def test_a_fleet_that_carries_its_load_without_headroom_is_kept_where_no_other_has_any() -> None:
    problem = a_case(an_offer("a", price=4.0), headroom_fraction=0.25, demand_rps=1.6)
    found = considered(with_demand(problem, 1.9 / 1.6), a_fleet(problem))
    assert [option.kind for option in found.options] == ["keep"]
    assert found.keep.carries
    assert found.conflicts == ()


def test_a_budget_that_has_shrunk_makes_what_runs_invalid_and_others_obey_it() -> None:
    problem = a_case(an_offer("a", price=4.0, available=2), objective="max_throughput", budget_usd_per_hour=8.0)
    plan = a_fleet(problem)
    less = replace(problem, budget_usd_per_hour=5.0)
    found = considered(less, plan)
    assert not found.keep.is_valid
    assert found.keep.capacity_rps == pytest.approx(4.0)
    valid = [option for option in found.options if option.is_valid]
    assert valid
    assert all(option.cost_usd_per_hour <= 5.0 for option in valid)
    assert valid[-1].capacity_rps == pytest.approx(2.0)


def test_more_is_carried_within_the_budget_where_capacity_has_become_cheaper() -> None:
    """8 $/h buy two machines of 4 $/h, or four of 2 $/h: 4 rps more, at 2 $/h for each of them."""
    problem = a_case(an_offer("a", price=4.0, available=4), objective="max_throughput", budget_usd_per_hour=8.0)
    market = [an_offer("b", price=2.0, available=4)]
    found = considered(problem, a_fleet(problem), market=market, switching=Switching(usd_per_rps=2.0))
    option = found.options[-1]
    assert machines_of(option.plan) == {"b-1": 4}
    assert (option.capacity_rps, option.benefit_usd_per_hour) == pytest.approx((8.0, 8.0))
    assert option.plan is not None
    assert option.plan.bound == pytest.approx(8.0)


def test_at_the_same_capacity_what_is_cheaper_is_worth_what_it_saves() -> None:
    problem = a_case(an_offer("a", price=4.0), objective="max_throughput", budget_usd_per_hour=4.0)
    market = [an_offer("b", price=2.5)]
    option = considered(problem, a_fleet(problem), market=market, switching=FREE).options[-1]
    assert (option.capacity_rps, option.benefit_usd_per_hour) == pytest.approx((2.0, 1.5))


def test_watts_are_worth_what_the_fleet_pays_for_them_now() -> None:
    """700 W for 1.40 $/h: half of them are worth 0.70 $/h, though the machine that needs them costs more."""
    problem = a_case(an_offer("a", price=1.4), objective="min_power")
    option = considered(problem, a_fleet(problem), market=[an_offer("b", price=3.0)], switching=FREE).options[-1]
    assert machines_of(option.plan) == {"b-1": 1}
    assert option.benefit_usd_per_hour == pytest.approx(0.7)


def test_watts_of_machines_that_cost_nothing_are_worth_something() -> None:
    problem = a_case(an_offer("a", price=0.0), objective="min_power")
    option = considered(problem, a_fleet(problem), market=[an_offer("b", price=0.0)], switching=FREE).options[-1]
    assert machines_of(option.plan) == {"b-1": 1}
    assert option.benefit_usd_per_hour > 0


def a_pair() -> Problem:
    """A machine of two: each GPU alone serves 3 rps of w1 and hardly any w2, the pair 4 rps of either."""
    return a_problem(
        models=[a_model(a_workload("w1", demand=0.05), a_workload("w2"))],
        offers=[an_offer("a", 2, price=6.0)],
        rows=[measured("a", {"w1": 3.0, "w2": 0.5}), measured("a:2", {"w1": 4.0, "w2": 4.0})],
        budget_usd_per_hour=6.0,
    )


def test_other_engines_on_the_same_machines_are_a_relayout() -> None:
    """When only w1 is asked for, two single GPUs serve 6 rps where the pair serves 4; both engines start anew."""
    problem = a_pair()
    plan = a_fleet(problem)
    assert [replica.stages[0].tensor_parallel for replica in plan.replicas] == [2]
    only_w1 = replace(problem, models=(a_model(a_workload("w1")),))
    switching = Switching(startup_s=600.0, restart_s=60.0, usd_per_rps=1.5)
    found = considered(only_w1, plan, switching=switching)
    assert [option.kind for option in found.options] == ["keep", "relayout"]
    option = found.options[1]
    assert (option.change.started, option.change.stopped, option.change.restarted) == (0, 0, 2)
    assert (found.keep.capacity_rps, option.capacity_rps) == pytest.approx((4.0, 6.0))
    assert option.change.usd == pytest.approx(6.0 / 60)
    assert option.net_usd == pytest.approx(2 * 1.5 - 0.1)


def test_a_relayout_that_costs_more_than_it_brings_is_valued_so() -> None:
    """2 rps more are worth 0.20 $ within six minutes at 1 $ each; restarting for those six minutes costs 0.60 $."""
    problem = a_pair()
    plan = a_fleet(problem)
    only_w1 = replace(problem, models=(a_model(a_workload("w1")),))
    found = considered(only_w1, plan, switching=Switching(restart_s=360.0, horizon_s=360.0, usd_per_rps=1.0))
    for option in found.options[1:]:
        assert option.net_usd == pytest.approx(-0.4)


@pytest.mark.parametrize(("least_net_usd", "is_urgent", "is_sought"), [(1.5, False, True), (2.5, False, False)])
def test_no_search_is_begun_for_less_than_is_worth_doing(
    least_net_usd: float, is_urgent: bool, is_sought: bool
) -> None:
    """At most 2 $ can be saved in the hour."""
    problem = a_case(an_offer("a", price=4.0))
    market = [an_offer("b", price=2.0)]
    found = considered(
        problem, a_fleet(problem), market=market, least_net_usd=least_net_usd, is_urgent=is_urgent, switching=FREE
    )
    assert found.most_net_usd == pytest.approx(2.0)
    assert found.searched == is_sought
    assert (found.option("refleet") is not None) == is_sought


def test_what_is_urgent_or_does_not_carry_its_load_is_always_sought() -> None:
    problem = a_case(an_offer("a", price=4.0, available=2))
    plan = a_fleet(problem)
    assert considered(problem, plan, least_net_usd=1e9, is_urgent=True).searched
    assert considered(with_demand(problem, 2.0), plan, least_net_usd=1e9, is_urgent=False).searched


def test_a_change_takes_money_but_re_routing_takes_none() -> None:
    """The mix has turned: the routing in force carries 4 rps, the best one 4.8 (test_replanning_routing.py)."""
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a"), an_offer("b")],
        rows=[measured("a", {"w1": 3.0, "w2": 1.0}), measured("b", {"w1": 1.0, "w2": 3.0})],
    )
    turned = with_demand(problem, 3.0, of="w1")
    switching = Switching(startup_s=600.0, restart_s=60.0, usd_per_rps=0.5)
    found = considered(turned, a_fleet(problem), switching=switching)
    option = found.option("reroute")
    assert option is not None
    assert (found.keep.capacity_rps, option.capacity_rps) == pytest.approx((4.0, 4.8))
    assert option.change.is_none
    assert (option.benefit_usd_per_hour, option.net_usd) == pytest.approx((0.4, 0.4))
    assert option.break_even_s == 0.0
    assert [o.kind for o in found.options] == ["keep", "reroute"]


def test_what_brings_nothing_never_pays_for_itself() -> None:
    """A dearer machine for the same load: it has to be taken, since the old one is too slow for more."""
    problem = a_case(an_offer("a", price=4.0, available=2))
    plan = a_fleet(problem)
    market = [an_offer("a", price=4.0, available=2)]
    found = considered(
        with_demand(problem, 1.5), plan, market=market, switching=Switching(startup_s=360.0, usd_per_rps=0.0)
    )
    option = found.options[-1]
    assert option.carries
    assert option.benefit_usd_per_hour == pytest.approx(-4.0)
    assert option.break_even_s is None


def test_progress_and_seconds_come_from_the_clock_that_is_given() -> None:
    problem = a_case(an_offer("a", price=4.0))
    plan = a_fleet(problem)
    holdings = holdings_of(plan.rentals)
    on_market = with_held(problem, holdings, [an_offer("b", price=1.0)])
    told: list[Progress] = []
    ticks = iter_seconds()
    found = consider(
        Consideration(on_market, standing_of(plan, holdings), FREE),
        clock=lambda: next(ticks),
        on_progress=told.append,
    )
    phases = [progress.phase for progress in told]
    assert phases[:3] == ["routing", "relaxation", "refleet"]
    assert [progress.seconds for progress in told] == sorted({progress.seconds for progress in told})
    assert found.seconds > told[-1].seconds


def iter_seconds() -> Iterator[float]:
    """A clock of which every look takes a thousandth of a second."""
    now_s = 100.0
    while True:
        yield now_s
        now_s += 0.001


def test_without_time_to_search_what_runs_is_still_valued() -> None:
    problem = a_case(an_offer("a", price=4.0))
    plan = a_fleet(problem)
    holdings = holdings_of(plan.rentals)
    on_market = with_held(problem, holdings, [an_offer("b", price=1.0)])
    hurried = replace(on_market, options=replace(on_market.options, time_limit_s=1e-9))
    found = consider(Consideration(hurried, standing_of(plan, holdings), FREE))
    assert found.keep.carries
    assert found.most_net_usd == pytest.approx(3.0)


def test_a_standing_fleet_that_the_problem_does_not_hold_is_refused() -> None:
    problem = a_case(an_offer("a", price=4.0))
    plan = a_fleet(problem)
    standing = standing_of(plan, holdings_of(plan.rentals))
    with pytest.raises(InvalidProblemError, match=r"standing\.rentals\[0\]"):
        consider(Consideration(problem, standing, FREE))
