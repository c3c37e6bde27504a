"""Looks at a deployment, with the real solver: what is issued, what is only said, and what people are told."""

from datetime import timedelta

import pytest

from sutler.service.deployments.replanning.preparing import prepare
from sutler.service.deployments.replanning.verdict import State
from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.plan import DeratedConfiguration, DeratedStage, ValidationDocument
from sutler.solver.replanning import Considered, consider
from tests.service.deployments.replanning.builders import (
    START,
    a_holding,
    a_market,
    a_problem,
    an_offer,
    holdings_as_planned,
    known_of,
    observed,
    traffic,
)
from tests.service.deployments.replanning.worlds import World, a_world, machines

MIX = {"kind": "max_throughput"}


def state(world: World) -> State:
    return world.verdicts[-1].state


def considered(world: World) -> Considered:
    found = world.verdicts[-1].considered
    assert found is not None
    return found


def load_times(world: World, factor: float) -> None:
    """All kinds of requests, so many times what was planned, for hours."""
    world.traffic = traffic(20.0 * factor, 2.0 * factor, at=world.now, policy=world.policy)


def test_where_nothing_has_moved_nothing_is_considered() -> None:
    world = a_world()
    verdict = world.look()
    assert (verdict.considered, verdict.decision, verdict.plan) == (None, None, None)
    assert (state(world).status, state(world).detail) == ("calm", "nothing has moved")


def test_more_traffic_brings_a_fleet_that_carries_it_with_its_reason_and_evidence() -> None:
    world = a_world()
    load_times(world, 2.0)
    verdict = world.look()
    assert verdict.plan is not None
    assert verdict.decision is not None
    assert verdict.decision.reason.startswith(
        "another fleet: what runs carries 71% of the load, 120% are wanted; it costs "
    )
    assert [drift.kind for drift in verdict.drifts] == ["rate"]
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1.2 * (1 - 1e-6)
    assert any(note.startswith("Replanned: another fleet") for note in world.plan.notes)


def test_machines_that_stay_are_not_rented_anew() -> None:
    world = a_world()
    load_times(world, 2.0)
    world.look()
    kept = [rental for rental in world.plan.rentals if rental.held]
    assert sum(rental.count for rental in kept) == 2
    change = considered(world).option("refleet")
    assert change is not None
    assert (change.change.stopped, change.change.restarted) == (0, 0)


def test_what_is_wished_for_is_not_said_to_be_held() -> None:
    world = a_world(rented=False)
    load_times(world, 2.0)
    world.look()
    assert machines(world)["acme/large"] >= 2
    assert not any(rental.held for rental in world.plan.rentals)


def test_after_a_revision_for_what_is_seen_the_same_is_no_drift_any_more() -> None:
    world = a_world()
    load_times(world, 2.0)
    world.look()
    world.lives(20)
    assert len(world.revisions) == 1


def test_less_traffic_that_lasts_brings_a_smaller_fleet() -> None:
    world = a_world()
    load_times(world, 0.4)
    world.look()
    assert world.revisions == [world.now]
    assert sum(machines(world).values()) < 3
    assert world.plan.cost_usd_per_hour is not None
    assert world.plan.cost_usd_per_hour < 4.0


def test_a_rerouting_that_suffices_touches_no_machine() -> None:
    """More documents fill the large machine, which has to leave its questions to the small ones."""
    tight = {"kind": "min_cost", "headroom_fraction": 0.0}
    offers = (an_offer(available=1), an_offer("small", gpu="rtx-4090", price_usd_per_hour=0.9))
    world = a_world(*offers, problem=a_problem(objective=tight), policy={"mix_drift": 0.03})
    before = machines(world)
    assert before == {"acme/large": 1, "acme/small": 2}
    world.traffic = traffic(18.8, 2.9, at=world.now, policy=world.policy)
    verdict = world.look()
    assert considered(world).keep.load_multiple == pytest.approx(0.974, abs=0.01)
    assert verdict.decision is not None
    assert verdict.decision.reason.startswith("re-routing: what runs carries 97%")
    assert (world.revisions, machines(world)) == ([world.now], before)
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1 - 1e-6


def test_a_lost_machine_is_replaced_at_once_in_spite_of_the_cool_down() -> None:
    world = a_world(settled_in=False)
    world.passes(10)
    world.reports([a_holding(count=1)])
    verdict = world.look()
    assert verdict.plan is not None
    assert [(drift.kind, drift.is_urgent) for drift in verdict.drifts] == [("lost", True)]
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1.0


def test_a_loss_for_which_there_is_no_other_is_made_good_with_what_there_is() -> None:
    """The two were the last of their kind."""
    singles = tuple(an_offer(f"single-{n}", available=1, machine_id=f"m{n}", machine_gpus=1) for n in range(2))
    small = an_offer("small", gpu="rtx-4090", price_usd_per_hour=0.9)
    world = a_world(*singles, small)
    assert machines(world) == {"acme/single-0": 1, "acme/single-1": 1}
    world.passes(5)
    world.reports(holdings_as_planned(world.plan)[:1])
    world.look()
    assert len(world.revisions) == 1
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1.0
    assert "acme/small" in machines(world)


def test_a_single_machine_that_was_lost_is_not_wished_for_before_a_poll_has_seen_it_again() -> None:
    singles = tuple(an_offer(f"single-{n}", available=1, machine_id=f"m{n}", machine_gpus=1) for n in range(2))
    world = a_world(*singles, an_offer("small", gpu="rtx-4090", price_usd_per_hour=0.9))
    world.passes(5)
    world.reports([h for h in holdings_as_planned(world.plan) if h.offer_id != "single-1"])
    world.look()
    assert "acme/single-1" not in machines(world)


def test_all_that_was_lost_and_is_for_rent_again_is_the_same_plan_issued_anew() -> None:
    world = a_world()
    before = machines(world)
    world.passes(5)
    world.reports([])
    world.poll()
    verdict = world.look()
    assert verdict.plan is not None
    assert machines(world) == before
    assert not any(rental.held for rental in verdict.plan.rentals)


def test_a_loss_is_issued_for_once() -> None:
    world = a_world()
    world.passes(5)
    world.reports([a_holding(count=1)])
    world.look()
    world.lives(10)
    assert len(world.revisions) == 1


def test_offers_of_a_plan_that_nobody_rents_leave_and_another_plan_takes_their_place() -> None:
    """Once that is confirmed: one poll proves nothing."""
    world = a_world(rented=False)
    world.reports([])
    world.passes(60)
    world.poll(*a_market()[1:])
    assert world.look().drifts == ()
    assert world.revisions == []
    world.passes(world.policy.settle_s)
    world.poll()
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts] == ["gone"]
    assert world.revisions == [world.now]
    assert "acme/large" not in machines(world)


def test_what_two_polls_of_its_provider_do_not_show_is_gone() -> None:
    other = an_offer("other", price_usd_per_hour=2.2)
    world = a_world(*a_market(), other, rented=False)
    world.reports([])
    for expected in ([], ["gone"]):
        world.passes(60)
        world.poll(*a_market()[1:], other)
        assert [drift.kind for drift in world.look().drifts] == expected
    assert world.revisions == [world.now]


def test_one_poll_without_half_of_its_rows_moves_nothing() -> None:
    world = a_world(rented=False)
    world.reports([])
    whole = world.offers
    for _ in range(3):
        world.passes(60)
        world.poll(*whole[1:])
        world.look()
        world.passes(60)
        world.poll(*whole)
        assert world.look().drifts == ()
    assert world.revisions == []
    assert world.alerts == []


def test_machines_of_a_plan_that_nobody_has_ever_reported_may_be_running_and_are_never_dropped() -> None:
    """That they are not listed any more is what renting them looks like."""
    world = a_world(rented=False)
    before = machines(world)
    world.lives(40, a_market()[1:])
    assert world.revisions == []
    assert machines(world) == before
    [alert] = world.alerts
    assert alert.startswith("unreported: 2 machines of the plan")
    assert "deployments ack" in alert
    assert state(world).unseen == 2


def test_an_unreported_fleet_grows_beside_what_may_be_running() -> None:
    world = a_world(rented=False)
    before = machines(world)
    world.passes(60)
    world.poll(*a_market()[1:])
    load_times(world, 2.0)
    world.look()
    assert len(world.revisions) == 1
    assert all(machines(world)[name] >= count for name, count in before.items())
    assert sum(machines(world).values()) > sum(before.values())


def test_who_reports_that_nothing_is_rented_gets_what_can_be() -> None:
    world = a_world(rented=False)
    world.passes(60)
    world.poll(*a_market()[1:])
    world.look()
    world.reports([])
    world.passes(world.policy.settle_s)
    world.poll()
    world.look()
    assert len(world.revisions) == 1
    assert "acme/large" not in machines(world)


def test_offers_of_machines_that_are_rented_may_leave_the_market() -> None:
    world = a_world()
    world.lives(20, a_market()[1:])
    assert world.revisions == []


NONE_LEFT = an_offer(available=0)


def test_a_load_that_no_fleet_carries_keeps_the_plan_says_what_is_short_and_alerts_once() -> None:
    world = a_world(an_offer(available=2))
    world.poll(NONE_LEFT)
    for _ in range(5):
        world.passes(60)
        load_times(world, 6.0)
        world.look()
    assert world.revisions == []
    assert state(world).status == "short"
    assert state(world).conflicts
    assert all(conflict.remedy for conflict in state(world).conflicts)
    assert state(world).load_multiple == pytest.approx(1.429 / 6, rel=0.01)
    assert [alert.split(":")[0] for alert in world.alerts] == ["short"]


def test_of_a_load_that_no_fleet_carries_as_much_is_carried_as_there_are_machines_for() -> None:
    world = a_world(an_offer(available=2))
    for number in range(3):
        world.passes(60)
        world.poll(an_offer(available=3 if number == 0 else 0))
        load_times(world, 6.0)
        world.look()
        assert state(world).status == "short"
        assert {conflict.unit for conflict in state(world).conflicts} == {"rps"}
        assert state(world).load_multiple == pytest.approx(5 / 2 * 1.429 / 6, rel=0.01)
    assert len(world.revisions) == 1
    assert sum(rental.count for rental in world.plan.rentals) == 5
    assert "Planned for 59% of the load" in " ".join(world.plan.notes)
    assert [alert.split(":")[0] for alert in world.alerts] == ["short"]
    world.passes(60)
    world.poll(an_offer(available=12))
    world.look()
    assert state(world).status == "calm"
    assert sum(workload.rate_rps or 0.0 for workload in world.planned.models[0].workloads or ()) == pytest.approx(132)


def test_all_of_a_load_is_remembered_where_a_part_of_it_is_carried_and_nobody_reports_it_any_more() -> None:
    world = a_world(an_offer(available=2))
    world.passes(60)
    world.poll(an_offer(available=3))
    load_times(world, 6.0)
    world.look()
    assert len(world.revisions) == 1
    world.traffic = known_of([], at=world.now)
    world.passes(60)
    world.poll(NONE_LEFT)
    world.look()
    assert state(world).status == "short"
    assert state(world).load_multiple == pytest.approx(5 / 2 * 1.429 / 6, rel=0.01)
    world.passes(60)
    world.poll(an_offer(available=12))
    world.look()
    assert state(world).status == "calm"
    assert world.plan.throughput_rps == pytest.approx(132)


def test_of_a_load_that_the_budget_does_not_carry_as_much_is_carried_as_it_allows() -> None:
    world = a_world(an_offer(available=20), problem=a_problem(budget_usd_per_hour=9.0))
    before = sum(rental.count for rental in world.plan.rentals)
    world.passes(60)
    load_times(world, 6.0)
    world.look()
    assert state(world).status == "short"
    assert "budget" in {conflict.constraint for conflict in state(world).conflicts}
    assert world.plan.cost_usd_per_hour is not None
    assert before * 2.0 < world.plan.cost_usd_per_hour <= 9.0
    assert state(world).load_multiple == pytest.approx(4 / 2 * 1.429 / 6, rel=0.01)


def test_for_what_somebody_asks_all_of_it_is_to_be_carried() -> None:
    world = a_world(an_offer(available=2))
    world.traffic = {}
    world.problem = a_problem(200.0, 20.0)
    world.look(is_asked=True)
    assert (world.revisions, state(world).status) == ([], "short")


def test_where_nothing_is_for_rent_what_is_left_of_the_fleet_is_judged() -> None:
    world = a_world(an_offer(available=2))
    world.poll(NONE_LEFT)
    assert world.holdings is not None
    world.reports([holding.model_copy(update={"count": 1}) for holding in world.holdings])
    world.passes(60)
    world.poll(NONE_LEFT)
    world.look()
    assert state(world).status == "short"
    assert state(world).load_multiple == pytest.approx(1.429 / 2, rel=0.01)
    assert "1 of 2 x 1 h100-sxm" in state(world).detail


def test_a_shortage_that_is_over_and_comes_back_is_told_again() -> None:
    world = a_world(an_offer(available=2))
    world.poll(NONE_LEFT)
    for factor in (6.0, 6.0, 1.0, 6.0):
        world.passes(60)
        load_times(world, factor)
        world.look()
    assert [alert.split(":")[0] for alert in world.alerts if "short:" in alert] == ["short", "short"]


def test_a_market_that_can_carry_the_load_again_is_used_at_once() -> None:
    world = a_world(an_offer(available=2))
    world.poll(NONE_LEFT)
    world.passes(60)
    load_times(world, 3.0)
    world.look()
    assert state(world).status == "short"
    world.passes(60)
    world.poll(an_offer(available=9))
    load_times(world, 3.0)
    world.look()
    assert world.revisions == [world.now]
    assert world.plan.load_multiple is not None
    assert world.plan.load_multiple >= 1.2 * (1 - 1e-6)


def test_a_feed_that_falls_silent_is_told_once_and_nothing_is_planned_for_nothing() -> None:
    world = a_world()
    heard = observed(20.0, 2.0, until=world.now)
    for _ in range(40):
        world.passes(60)
        world.poll()
        world.traffic = known_of(heard, at=world.now)
        world.look()
    assert state(world).feed == "silent"
    assert [alert.split(":")[0] for alert in world.alerts] == ["silent"]
    assert world.revisions == []
    assert {w.rate_rps for m in world.verdicts[-1].problem.models for w in m.workloads or ()} == {20.0, 2.0}


def test_a_silent_feed_keeps_the_last_traffic_also_when_machines_are_lost() -> None:
    world = a_world()
    load_times(world, 2.0)
    world.look()
    before = world.plan.cost_usd_per_hour
    heard = observed(40.0, 4.0, until=world.now)
    world.passes(4000)
    world.poll()
    world.traffic = known_of(heard, at=world.now, planned=world.planned)
    world.reports([])
    world.poll()
    world.look()
    assert world.plan.cost_usd_per_hour == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("feed", ["none", "thin"])
def test_a_feed_that_was_never_there_or_is_thin_is_said_and_nobody_is_woken(feed: str) -> None:
    world = a_world()
    heard = observed(0.01, 0.0, until=world.now, length_s=60.0) if feed == "thin" else []
    world.traffic = known_of(heard, at=world.now, planned=a_problem(0.02, 0.01))
    world.look()
    assert (state(world).feed, world.alerts, world.revisions) == (feed, [], [])


def test_on_a_market_that_is_wholly_stale_nothing_is_wished_for_and_why_is_raised() -> None:
    world = a_world(rented=False)
    load_times(world, 2.0)
    world.passes(3600)
    with pytest.raises(NoMarketDataError, match="raise market"):
        world.look()
    assert world.revisions == []


def test_a_provider_that_is_stale_makes_nothing_gone() -> None:
    world = a_world(rented=False)
    world.passes(3600)
    offers = tuple(
        offer.model_copy(update={"observed_at": START if offer.provider == "acme" else world.now})
        for offer in a_market()
    )
    world.offers = offers
    world.polled_at = world.now
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts if drift.is_urgent] == []
    assert machines(world) == {"acme/large": 2}


def test_in_calm_that_has_lasted_the_plan_is_looked_over() -> None:
    world = a_world(policy={"refine_s": 900.0})
    world.traffic = {}
    verdict = world.look()
    assert (verdict.considered, verdict.look_at) == (None, START + timedelta(seconds=900))
    world.now = verdict.look_at
    world.poll()
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts] == ["refinement"]
    assert considered(world).searched
    assert (verdict.plan, state(world).status) == (None, "calm")
    assert verdict.look_at == world.now + timedelta(seconds=900)


def test_a_plan_that_is_too_old_is_issued_anew_as_it_is() -> None:
    world = a_world(policy={"max_age_s": 7200.0, "refine_s": 1e5})
    before = machines(world)
    world.passes(7200)
    world.poll()
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts] == ["age"]
    assert (world.revisions, machines(world)) == ([world.now], before)


def test_within_the_cool_down_nothing_is_changed_for_money() -> None:
    world = a_world(policy={"cooldown_s": 3000.0, "settle_s": 0.0}, settled_in=False)
    world.passes(60)
    world.poll(*a_market()[:1], an_offer("bargain", price_usd_per_hour=0.5))
    verdict = world.look()
    assert world.revisions == []
    assert "cool-down" in state(world).detail
    assert verdict.look_at <= START + timedelta(seconds=3000)


def test_a_plan_that_changes_no_machines_does_not_begin_the_cool_down_anew() -> None:
    world = a_world(policy={"cooldown_s": 900.0, "max_age_s": 800.0, "settle_s": 0.0}, settled_in=False)
    before = machines(world)
    world.passes(850.0)
    world.poll()
    world.look()
    assert (len(world.revisions), machines(world)) == (1, before)
    world.passes(100.0)
    world.poll(*a_market()[:1], an_offer("bargain", price_usd_per_hour=0.5))
    world.look()
    assert machines(world) == {"acme/bargain": sum(before.values())}
    world.passes(100.0)
    world.poll(*a_market()[:1], an_offer("gift", price_usd_per_hour=0.1))
    world.look()
    assert machines(world) == {"acme/bargain": sum(before.values())}
    assert "cool-down" in state(world).detail


def test_within_the_cool_down_more_traffic_that_is_still_carried_waits() -> None:
    world = a_world(policy={"cooldown_s": 3000.0}, settled_in=False)
    world.passes(60)
    load_times(world, 1.3)
    world.look()
    assert (world.revisions, state(world).status) == ([], "waiting")
    assert "2026-11-20 12:50:00 UTC" in state(world).detail
    world.now = START + timedelta(seconds=3001)
    world.poll()
    load_times(world, 1.3)
    world.look()
    assert world.revisions == [world.now]


def test_within_the_cool_down_more_traffic_than_is_carried_does_not_wait() -> None:
    world = a_world(policy={"cooldown_s": 3000.0}, settled_in=False)
    world.passes(60)
    load_times(world, 2.0)
    world.look()
    assert world.revisions == [world.now]


@pytest.mark.parametrize(("horizon_s", "changes"), [(900.0, False), (7200.0, True)])
def test_a_change_has_to_pay_within_the_horizon(horizon_s: float, changes: bool) -> None:
    """0.80 $/h are saved and 0.35 $ paid for the change."""
    world = a_world(policy={"horizon_s": horizon_s, "settle_s": 0.0})
    world.poll(an_offer(), an_offer(provider="bolt", price_usd_per_hour=1.6))
    world.look()
    assert bool(world.revisions) is changes


@pytest.mark.parametrize(("min_rental_s", "changes"), [(3600.0, True), (6 * 3600.0, False)])
def test_a_rental_that_is_paid_for_longer_than_the_horizon_is_dearer(min_rental_s: float, changes: bool) -> None:
    world = a_world(policy={"min_rental_s": min_rental_s, "settle_s": 0.0})
    world.poll(an_offer(), an_offer(provider="bolt", price_usd_per_hour=1.4))
    world.look()
    assert bool(world.revisions) is changes


@pytest.mark.parametrize(("payback_s", "kept"), [(3600.0, 0), (180.0, 2)])
def test_a_change_that_cannot_wait_changes_as_little_as_the_policy_says(payback_s: float, kept: int) -> None:
    """Machines that would be replaced by cheaper ones in calm stay where more are needed now."""
    world = a_world(policy={"urgent_payback_s": payback_s})
    world.poll(an_offer(), an_offer(provider="bolt", price_usd_per_hour=1.6))
    load_times(world, 2.0)
    world.look()
    assert len(world.revisions) == 1
    assert machines(world).get("acme/large", 0) == kept


def test_a_change_for_money_states_what_it_gains_costs_and_when_it_has_paid() -> None:
    world = a_world(policy={"settle_s": 0.0})
    world.poll(an_offer(), an_offer(provider="bolt", price_usd_per_hour=1.6))
    verdict = world.look()
    assert verdict.decision is not None
    chosen = verdict.decision.chosen
    assert chosen.kind == "refleet"
    assert chosen.benefit_usd_per_hour == pytest.approx(0.8)
    assert chosen.net_usd == pytest.approx(0.8 - chosen.change.usd)
    assert chosen.break_even_s == pytest.approx(chosen.change.usd / 0.8 * 3600)
    assert "gains 0.80 $/h" in verdict.decision.reason
    assert f"costs {chosen.change.usd:.2f} $" in verdict.decision.reason


def test_a_manual_policy_only_says_what_would_be_done() -> None:
    world = a_world(policy={"automatic": False})
    load_times(world, 2.0)
    verdict = world.look()
    assert (verdict.plan, world.revisions) == (None, [])
    assert state(world).status in ("manual", "short")
    assert "POST /replan" in state(world).detail


def test_a_manual_policy_says_that_money_could_be_saved() -> None:
    world = a_world(policy={"automatic": False, "settle_s": 0.0})
    world.poll(an_offer(), an_offer(provider="bolt", price_usd_per_hour=1.4))
    world.look()
    assert (world.revisions, state(world).status) == ([], "manual")


def test_a_manual_policy_issues_what_is_asked_for() -> None:
    world = a_world(policy={"automatic": False})
    load_times(world, 2.0)
    verdict = world.look(is_asked=True)
    assert verdict.plan is not None
    assert [drift.kind for drift in verdict.drifts] == ["rate", "asked"]


def test_what_is_asked_for_does_not_wait_for_the_cool_down() -> None:
    world = a_world(settled_in=False)
    world.passes(5)
    assert world.look(is_asked=True).plan is not None


def test_a_clock_that_goes_backwards_does_no_harm() -> None:
    world = a_world()
    load_times(world, 2.0)
    world.look()
    world.passes(-7200)
    world.poll()
    world.traffic = traffic(40.0, 4.0, at=world.now, policy=world.policy)
    for _ in range(5):
        world.passes(60)
        verdict = world.look()
        assert verdict.look_at > world.now
    assert len(world.revisions) == 1
    world.passes(7200 + 600)
    world.poll()
    world.reports([])
    world.poll()
    world.look()
    assert len(world.revisions) == 2


def test_the_next_look_is_always_ahead() -> None:
    world = a_world(policy={"cooldown_s": 0.0, "settle_s": 0.0, "refine_s": 60.0, "max_age_s": 60.0})
    for seconds in (0.0, 1.0, 59.0, 60.0, 3.0, -500.0, 0.0):
        world.passes(seconds)
        world.poll()
        world.traffic = traffic(20.0, 2.0, at=world.now, policy=world.policy)
        assert world.look().look_at > world.now


def test_where_only_the_mix_counts_another_mix_is_planned_for_within_the_budget() -> None:
    problem = a_problem(objective=MIX, budget_usd_per_hour=4.5)
    world = a_world(problem=problem)
    world.traffic = traffic(4.0, 12.0, at=world.now, policy=world.policy)
    verdict = world.look()
    assert "mix" in [drift.kind for drift in verdict.drifts]
    assert world.plan.cost_usd_per_hour is not None
    assert world.plan.cost_usd_per_hour <= 4.5


def searches(world: World) -> int:
    return sum(1 for verdict in world.verdicts if verdict.considered is not None and verdict.considered.searched)


def test_a_shortage_is_not_searched_anew_at_every_look_at_the_same_market_and_load() -> None:
    world = a_world(an_offer(available=2))
    world.poll(NONE_LEFT)
    for _ in range(10):
        world.passes(10)
        load_times(world, 6.0)
        world.look()
    assert searches(world) <= 2


def test_another_mix_for_which_no_change_pays_is_not_searched_anew_at_every_look() -> None:
    world = a_world(
        problem=a_problem(objective=MIX, budget_usd_per_hour=4.5),
        policy={"least_gain_fraction": 0.9, "urgent_payback_s": 72.0},
    )
    for _ in range(10):
        world.passes(10)
        world.traffic = traffic(4.0, 12.0, at=world.now, policy=world.policy)
        world.look()
    assert world.revisions == []
    assert searches(world) <= 2


def test_what_nobody_may_change_is_not_searched_anew_at_every_look() -> None:
    world = a_world(policy={"automatic": False})
    for _ in range(10):
        world.passes(10)
        load_times(world, 2.0)
        world.look()
    assert searches(world) <= 2


def test_a_load_that_is_not_carried_and_nobody_may_change_wakes_somebody() -> None:
    world = a_world(policy={"automatic": False})
    load_times(world, 2.0)
    world.look()
    assert world.alerts


def test_a_fleet_that_nobody_could_have_is_rented_once_somebody_can() -> None:
    world = a_world(problem=a_problem(budget_usd_per_hour=1.0))
    assert world.plan.status == "infeasible"
    world.look()
    assert (state(world).status, state(world).detail) == (
        "short",
        "no fleet on this market carries the load: nothing runs; budget: 4 usd_per_hour needed, 1 there",
    )
    world.lives(3, a_market()[:2], a_market())
    assert len(world.alerts) == 1
    assert world.revisions == []
    world.lives(1, [an_offer(price_usd_per_hour=0.4)])
    assert world.plan.status in ("optimal", "feasible")
    assert world.verdicts[-1].decision is not None
    assert world.verdicts[-1].decision.reason.startswith("a fleet that serves: nothing runs, 120% are wanted")


def in_silence(world: World) -> World:
    """Every provider has been silent for an hour."""
    world.passes(3600.0)
    return world


def test_what_is_held_is_laid_out_for_other_traffic_while_no_provider_answers() -> None:
    world = in_silence(a_world())
    assert world.look().state.status == "blind"
    world.traffic = traffic(10.0, 6.0, at=world.now, policy=world.policy)
    world.look()
    assert {drift.kind for drift in state(world).drifts} >= {"mix"}
    assert considered(world).option("refleet") is None or machines(world) == {"acme/large": 2}
    assert machines(world) == {"acme/large": 2}


def test_nothing_is_rented_of_a_market_that_is_silent() -> None:
    world = in_silence(a_world())
    load_times(world, 3.0)
    verdict = world.look()
    assert verdict.plan is None
    assert state(world).status == "short"
    assert world.alerts[-1].startswith("short: ")


def test_what_is_lost_in_silence_is_said() -> None:
    world = in_silence(a_world())
    world.reports([a_holding(count=1)])
    verdict = world.look()
    assert [drift.kind for drift in verdict.drifts] == ["lost", "refinement"]
    assert state(world).status == "short"


def test_a_plan_for_less_than_is_stated_says_so() -> None:
    world = a_world(problem=a_problem(40.0, 4.0))
    world.traffic = traffic(40.0, 4.0, at=world.now, policy=world.policy)
    world.look(is_asked=True)
    assert all("at_least_stated" not in note for note in world.plan.notes)
    world.traffic = traffic(20.0, 2.0, at=world.now, policy=world.policy)
    assert world.look(is_asked=True).plan is not None
    [note] = [note for note in world.plan.notes if "at_least_stated" in note]
    assert note.startswith(
        "chat: planned for the 22 requests/s that are seen, not for the 44 that the problem states"
    )


def test_silence_of_all_providers_is_told_once() -> None:
    world = in_silence(a_world())
    world.look()
    world.passes(60.0)
    world.look()
    assert [alert.split(":")[0] for alert in world.alerts] == ["blind"]


def test_a_plan_that_is_made_anew_for_its_age_has_its_proof() -> None:
    world = a_world(policy={"max_age_s": 200.0, "cooldown_s": 300.0}, settled_in=False)
    world.passes(250.0)
    world.poll()
    assert world.look().plan is not None
    assert world.plan.objective.bound is not None
    assert world.plan.objective.relative_gap is not None


def test_a_problem_that_was_changed_to_what_nobody_can_do_is_short_and_not_calm() -> None:
    world = a_world()
    world.traffic = {}
    world.problem = a_problem(4000.0, 2.0)
    world.look(is_behind=True)
    assert state(world).status == "short"
    assert "needed" in state(world).detail
    multiple = state(world).load_multiple
    assert multiple is not None
    assert multiple < 0.1
    assert world.revisions == []


@pytest.mark.parametrize("others", [{}, {"urgent_payback_s": 120.0, "horizon_s": 14_400.0}])
def test_throughput_that_is_lost_with_its_machines_is_rented_again_elsewhere(others: dict[str, float]) -> None:
    """Slow to start, and without a load that would say how much is needed."""
    slow = {"startup_s": 600.0, **others}
    world = a_world(problem=a_problem(objective=MIX, budget_usd_per_hour=5.0), policy=slow)
    before = world.plan.throughput_rps or 0.0
    world.reports([])
    world.poll(*a_market()[1:])
    assert world.look().plan is not None
    assert world.plan.throughput_rps == pytest.approx(before, rel=0.2)


def test_what_a_validation_has_found_counts_in_later_looks() -> None:
    world = a_world()
    world.passes(60)
    load_times(world, 1.0)
    before = prepare(world.facts(is_asked=True))
    [replica, *_] = world.plan.replicas
    stages = tuple(DeratedStage(gpu=stage.gpu, tensor_parallel=stage.tensor_parallel) for stage in replica.stages)
    derated = DeratedConfiguration(model=replica.model, stages=stages, fraction=0.5)
    found = ValidationDocument(
        traffic="random", requests=1, rounds=1, meets_all_limits=True, limits=(), derated=(derated,)
    )
    world.plan = world.plan.model_copy(update={"validation": found})
    after = prepare(world.facts(is_asked=True))
    assert before.consideration is not None
    assert after.consideration is not None
    assert before.consideration.problem.derated == ()
    assert [one.fraction for one in after.consideration.problem.derated] == [0.5]
    kept = [consider(one.consideration).keep.load_multiple or 0.0 for one in (before, after) if one.consideration]
    assert 0 < kept[1] < 0.8 * kept[0]
