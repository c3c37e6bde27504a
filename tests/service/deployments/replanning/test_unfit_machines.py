"""What is rented already is never unfit, and what a plan wishes for is judged once, when it is planned."""

from datetime import timedelta
from typing import Any

from sutler.service.documents.market import OfferDocument
from tests.service.deployments.replanning.builders import START, a_market, a_problem, traffic
from tests.service.deployments.replanning.worlds import a_world, machines

UNJUDGED = a_problem(market={"filter": {"fit": "off"}})


def all_with(**stated: Any) -> tuple[OfferDocument, ...]:
    return tuple(offer.model_copy(update=stated) for offer in a_market())


def without_ports_at(provider: str) -> tuple[OfferDocument, ...]:
    return tuple(
        offer.model_copy(update={"open_ports": 0}) if offer.provider == provider else offer for offer in a_market()
    )


def test_a_deployment_keeps_unfit_machines_that_it_holds() -> None:
    world = a_world(*all_with(open_ports=0), problem=UNJUDGED)
    before = machines(world)
    world.problem = a_problem()
    verdict = world.look(is_asked=True)
    assert verdict.decision is not None
    assert verdict.decision.chosen.kind == "keep"
    assert machines(world) == before


def test_what_is_added_to_them_is_fit() -> None:
    """acme is the cheapest and unfit from now on: its machines stay, and what more is needed comes from others."""
    world = a_world(*without_ports_at("acme"), problem=UNJUDGED)
    before = machines(world)
    assert set(before) == {"acme/large"}
    world.problem = world.planned = a_problem()
    world.traffic = traffic(60.0, 6.0, at=world.now, policy=world.policy)
    assert world.look().plan is not None
    after = machines(world)
    assert after["acme/large"] <= before["acme/large"]
    assert sum(after.values()) > sum(before.values())


def test_a_market_of_which_all_is_unfit_is_told_apart_from_providers_that_are_silent() -> None:
    world = a_world()
    before = machines(world)
    others = [offer for offer in all_with(open_ports=0) if f"{offer.provider}/{offer.offer_id}" not in before]
    world.poll(*others)
    state = world.look().state
    assert machines(world) == before
    assert state.status == "blind"
    assert state.detail == (
        f"market: none of {len(others)} offers is left (dropped by filter.fit.min_open_ports {len(others)}): "
        "only what is held is considered"
    )


def test_a_listing_that_comes_to_its_end_before_it_is_rented_is_no_reason_to_plan_anew() -> None:
    ends = START + timedelta(days=1, minutes=5)
    world = a_world(*all_with(listed_until=ends), rented=False)
    before = machines(world)
    world.lives(10)
    assert world.now > ends - timedelta(days=1)
    assert machines(world) == before
    assert world.revisions == []
