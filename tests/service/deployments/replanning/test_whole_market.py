"""When offers count that have not settled, and what else must not be overlooked."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sutler.service.deployments.replanning.load import seen
from sutler.service.deployments.replanning.preparing import prepare
from sutler.service.deployments.replanning.verdict import look
from sutler.service.workers.replan_job import Replan
from sutler.solver.replanning import consider
from tests.service.deployments.replanning.builders import a_problem, an_offer, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines

SCARCE = an_offer(available=2)


def loaded(world: World, factor: float) -> None:
    world.traffic = traffic(20.0 * factor, 2.0 * factor, at=world.now, policy=world.policy)


@pytest.mark.parametrize("cooldown_s", [0.0, 3000.0])
def test_a_load_that_only_new_offers_carry_is_carried_by_them(cooldown_s: float) -> None:
    world = a_world(SCARCE, policy={"cooldown_s": cooldown_s}, settled_in=False)
    world.passes(60)
    world.poll(an_offer("new", available=8))
    loaded(world, 2.0)
    world.look()
    assert machines(world)["acme/new"] > 0
    assert world.alerts == []


def test_what_is_asked_for_is_planned_on_the_market_as_it_is() -> None:
    world = a_world()
    world.poll(an_offer(), an_offer("bargain", price_usd_per_hour=0.5))
    world.look()
    assert world.revisions == []
    world.look(is_asked=True)
    assert machines(world) == {"acme/bargain": 2}


def test_the_whole_problem_is_solved_with_alternatives_but_not_at_low_rates() -> None:
    """Its fleet is not the one that is issued, so what it is worth there would be paid for in vain."""
    facts = a_world().facts(is_asked=True)
    nobody: Any = None
    replan = Replan(nobody, prepare(facts))
    assert (replan.problem.options.alternatives, replan.problem.options.robustness) == (True, False)
    assert not replan.prepared.question.problem.options.alternatives


def test_a_rental_that_ends_is_looked_at_before_it_does() -> None:
    world = a_world()
    assert world.holdings is not None
    ends = world.now + timedelta(seconds=600)
    ending = tuple(holding.model_copy(update={"expires_at": ends}) for holding in world.holdings)
    verdict = world.look(reported=ending, holdings=ending)
    assert verdict.look_at <= ends - timedelta(seconds=world.policy.startup_s)


def test_workloads_that_were_never_counted_are_planned_for_as_stated() -> None:
    problem = a_problem()
    [model] = problem.models
    renamed = tuple(w.model_copy(update={"name": f"new-{w.name}"}) for w in model.workloads or ())
    other = problem.model_copy(update={"models": (model.model_copy(update={"workloads": renamed}),)})
    [loaded_model] = seen(other, traffic(), None).models
    assert loaded_model.workloads == renamed


def test_a_shortage_whose_figures_change_is_told_once() -> None:
    world = a_world(SCARCE)
    for factor in (5.0, 6.0, 7.0, 8.0):
        loaded(world, factor)
        world.poll(SCARCE, an_offer("dear", gpu="rtx-4090", available=1, price_usd_per_hour=factor))
        world.look()
        world.passes(60)
    assert [alert.partition(":")[0] for alert in world.alerts] == ["short"]


def test_a_held_gpu_that_the_problem_no_longer_knows_is_left_out() -> None:
    world = a_world()
    assert world.holdings is not None
    strange = world.holdings[0].model_copy(update={"gpu": "unheard-of", "offer_id": "odd"})
    held = (*world.holdings, strange)
    verdict = look(replace(world.facts(), reported=held, holdings=held, is_asked=True), consider)
    assert verdict.state.status != "blind"
    assert verdict.plan is not None
    assert {rental.offer_id for rental in verdict.plan.rentals} == {"large"}


def test_machines_that_leave_the_market_while_a_plan_is_carried_out_are_those_that_are_rented_for_it() -> None:
    world = a_world(rented=False, policy={"carry_out_s": 900.0}, settled_in=False)
    world.reports([])
    world.passes(600)
    world.poll(an_offer(provider="bolt", price_usd_per_hour=2.4))
    verdict = world.look()
    assert (verdict.drifts, world.revisions) == ((), [])
    world.passes((verdict.look_at - world.now).total_seconds())
    assert world.look().drifts == ()  # one look is no proof
    world.passes(world.policy.settle_s)
    assert [drift.kind for drift in world.look().drifts] == ["gone"]
    assert len(world.revisions) == 1
