"""Which option is taken: the least disruptive that is worth it, and each is priced in its reason."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.service.deployments.replanning.decision import Decision, decide
from sutler.solver.plan import Loss, Route, Share
from sutler.solver.replanning import Considered, FleetChange, ReplanOption
from tests.service.deployments.replanning.builders import a_policy, an_option


def considered(*options: ReplanOption, searched: bool = True, most_net_usd: float = 100.0) -> Considered:
    return Considered(options, most_net_usd, searched)


def decided(*options: ReplanOption, searched: bool = True, most_net_usd: float = 100.0, **others: Any) -> Decision:
    """A fleet of 4 $/h with a margin of 5 % over an hour: 0.20 $."""
    given: dict[str, Any] = {"headroom_fraction": 0.2, "moved": False}
    policy = a_policy(**{name: others.pop(name) for name in ("least_gain_fraction", "horizon_s") if name in others})
    return decide(considered(*options, searched=searched, most_net_usd=most_net_usd), policy, **{**given, **others})


def keep(**others: Any) -> ReplanOption:
    return an_option("keep", **others)


def short(load_multiple: float, **others: Any) -> ReplanOption:
    """What runs does not carry all."""
    return an_option("keep", load_multiple=load_multiple, carries=load_multiple >= 1, **others)


def reroute(net_usd: float = 0.0, **others: Any) -> ReplanOption:
    return an_option("reroute", net_usd=net_usd, benefit_usd_per_hour=net_usd, **others)


def refleet(net_usd: float = 0.0, **others: Any) -> ReplanOption:
    return an_option("refleet", net_usd=net_usd, **others)


def test_without_anything_better_what_runs_is_kept() -> None:
    found = decided(keep())
    assert (found.chosen.kind, found.level) == ("keep", 2)
    assert found.reason == "no change was found that is better than what runs"


def test_a_change_that_nets_less_than_the_least_is_not_worth_it() -> None:
    found = decided(keep(), refleet(0.19))
    assert found.chosen.kind == "keep"
    assert found.reason == "the best change nets 0.19 $ in 1 h, and 0.20 $ is the least that is worth it"


def test_a_change_that_nets_more_than_the_least_is_taken_and_its_price_is_told() -> None:
    change = FleetChange(2, 2, 0, 0.4, 150.0)
    found = decided(keep(), refleet(0.4, benefit_usd_per_hour=0.8, change=change))
    assert found.chosen.kind == "refleet"
    assert found.reason == "another fleet gains 0.80 $/h; the change costs 0.40 $ and pays after 30 min"


def test_power_caps_are_called_so_where_nothing_else_changes() -> None:
    change = FleetChange(0, 0, 0, 0.0, 0.0, recapped=1)
    found = decided(keep(), refleet(0.4, benefit_usd_per_hour=0.8, change=change))
    assert found.reason == "other power caps on what runs gains 0.80 $/h"


def test_other_phases_are_called_so_where_no_machine_or_engine_changes() -> None:
    change = FleetChange(0, 0, 0, 0.0, 0.0, bent=1)
    found = decided(keep(), refleet(0.4, benefit_usd_per_hour=0.8, change=change))
    assert found.reason == "other phases for what runs, by routing alone, gains 0.80 $/h"


@pytest.mark.parametrize(("least_gain_fraction", "kind"), [(0.09, "refleet"), (0.11, "keep"), (0.0, "refleet")])
def test_the_least_gain_is_a_share_of_what_the_fleet_costs_within_the_horizon(
    least_gain_fraction: float, kind: str
) -> None:
    """Of 4 $: 0.40 $ are a tenth."""
    assert decided(keep(), refleet(0.4), least_gain_fraction=least_gain_fraction).chosen.kind == kind


@pytest.mark.parametrize(("horizon_s", "kind"), [(3600.0, "refleet"), (4 * 3600.0, "keep")])
def test_within_a_longer_horizon_more_must_be_gained(horizon_s: float, kind: str) -> None:
    assert decided(keep(), refleet(0.4), horizon_s=horizon_s).chosen.kind == kind


def test_a_rerouting_that_suffices_comes_before_a_fleet_that_brings_hardly_more() -> None:
    assert decided(keep(), reroute(1.0), refleet(1.1)).chosen.kind == "reroute"


def test_a_fleet_that_brings_far_more_than_a_rerouting_is_taken_all_the_same() -> None:
    assert decided(keep(), reroute(0.3), refleet(5.0)).chosen.kind == "refleet"


def test_other_replicas_on_the_same_machines_come_before_another_fleet() -> None:
    options = (keep(), reroute(0.0), an_option("relayout", net_usd=1.0), refleet(1.15))
    assert decided(*options).chosen.kind == "relayout"


def test_a_load_that_is_not_carried_comes_before_all_money() -> None:
    found = decided(short(0.6), refleet(-20.0, benefit_usd_per_hour=-3.0, switching_usd=2.0))
    assert found.chosen.kind == "refleet"
    assert (
        found.reason
        == "another fleet: what runs carries 60% of the load, 120% are wanted; it costs 2.00 $ for the change"
    )


def test_where_rerouting_carries_the_load_no_machine_is_touched() -> None:
    found = decided(short(0.9), reroute(0.0), refleet(0.1))
    assert found.chosen.kind == "reroute"
    assert found.reason == "re-routing: what runs carries 90% of the load, 120% are wanted"


def test_a_rerouting_that_is_not_enough_is_not_taken_for_one_that_is() -> None:
    assert decided(short(0.5), reroute(5.0, load_multiple=0.8, carries=False), refleet(-9.0)).chosen.kind == "refleet"


def test_headroom_is_restored_once_something_has_moved() -> None:
    tight = keep(load_multiple=1.05)
    assert decided(tight, refleet(-1.0), moved=True).chosen.kind == "refleet"
    assert decided(tight, refleet(-1.0), moved=False).chosen.kind == "keep"


def test_headroom_is_not_given_up_for_money() -> None:
    assert decided(keep(), refleet(50.0, load_multiple=1.05)).chosen.kind == "keep"


def test_a_fleet_that_carries_the_load_without_headroom_is_better_than_one_that_does_not() -> None:
    found = decided(short(0.7), refleet(-5.0, load_multiple=1.1))
    assert (found.chosen.kind, found.level) == ("refleet", 1)


def test_where_no_fleet_carries_the_load_what_runs_is_kept_and_that_is_said() -> None:
    found = decided(short(0.7), most_net_usd=float("-inf"))
    assert (found.chosen.kind, found.level) == ("keep", 0)
    assert found.reason == "no fleet on this market carries the load: what runs is kept"


def test_where_only_the_mix_counts_headroom_says_nothing() -> None:
    found = decided(keep(load_multiple=None), refleet(9.0, load_multiple=None), headroom_fraction=None)
    assert (found.chosen.kind, found.level) == ("refleet", 2)


def test_a_plan_that_breaks_a_limit_is_left_for_one_that_does_not() -> None:
    assert decided(keep(is_valid=False), refleet(-3.0)).chosen.kind == "refleet"
    assert decided(keep(), refleet(9.0, is_valid=False)).chosen.kind == "keep"


def test_a_fleet_of_which_nothing_is_left_is_replaced() -> None:
    nothing = keep(plan=None, load_multiple=0.0, carries=False, capacity_rps=0.0)
    found = decided(nothing, refleet(-3.0))
    assert found.chosen.kind == "refleet"
    assert found.reason.startswith("another fleet: what runs does not serve every kind of request")


def test_what_was_not_searched_is_proven_not_to_be_worth_it() -> None:
    found = decided(keep(), searched=False, most_net_usd=0.12)
    assert found.reason == (
        "no change can net more than 0.12 $ in 1 h, which is proven: 0.20 $ is the least that is worth it"
    )


def test_what_was_not_searched_in_the_cool_down_says_what_is_waiting() -> None:
    found = decided(keep(), searched=False, most_net_usd=0.9)
    assert "no change can net more than 0.90 $ in 1 h" in found.reason
    assert "cool-down" in found.reason


def test_a_change_that_costs_nothing_says_no_price() -> None:
    assert decided(keep(), reroute(2.0)).reason == "re-routing gains 2.00 $/h"


def test_a_fleet_that_has_lost_its_reserve_is_short_though_it_carries_the_load() -> None:
    route = Route("chat", "w1", (Share("chat-0", 1.0),))
    losses = (
        Loss("machine", "vastai/1/0", ("chat-0",), 0.1),
        Loss("provider", "vastai", ("chat-0",), 0.5, (route,)),
    )
    lost = keep(carries=False, load_multiple=1.3)
    assert lost.plan is not None
    lost = replace(lost, plan=replace(lost.plan, losses=losses))
    found = decided(lost, refleet(-5.0, load_multiple=1.3))
    assert found.chosen.kind == "refleet"
    assert found.reason.startswith("another fleet: without provider vastai what runs would carry 50% of the load")
    kept = decided(lost)
    assert (kept.chosen.kind, kept.level) == ("keep", 0)
    assert kept.reason == "no fleet on this market has the reserve: what runs is kept"
