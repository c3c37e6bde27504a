"""What is held beside what was held, or what a plan rents."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.holdings.comparison import beyond, carried_out, compared, rented_by
from sutler.service.deployments.holdings.schemas import HoldingDocument
from tests.service.deployments.diff.fleets import a_fleet, a_machine


def a_holding(offer_id: str = "123", **others: Any) -> HoldingDocument:
    given: dict[str, Any] = {"provider": "vastai", "gpu": "h100-sxm", "gpus": 4, "price_usd_per_hour": 9.05}
    return HoldingDocument(**{**given, "offer_id": offer_id, **others})


HOLDINGS = st.lists(
    st.builds(
        lambda offer, price, count: a_holding(offer, price_usd_per_hour=price, count=count),
        st.sampled_from("ab"),
        st.sampled_from([1.0, 2.0]),
        st.integers(1, 3),
    ),
    unique_by=lambda holding: (holding.offer_id, holding.price_usd_per_hour),
)


def total(holdings: Any, offer_id: str) -> int:
    return sum(holding.count for holding in holdings if holding.offer_id == offer_id)


def test_of_machines_at_several_prices_the_dearest_are_beyond() -> None:
    held = [a_holding(price_usd_per_hour=3.0), a_holding(price_usd_per_hour=1.0, count=2)]
    [one] = beyond(held, [a_holding(count=2)])
    assert (one.price_usd_per_hour, one.count) == (3.0, 1)


def test_another_contract_or_size_is_another_machine() -> None:
    plan = a_fleet(a_machine("123"))
    found = compared([a_holding(contract="interruptible"), a_holding(gpus=8)], plan)
    assert [holding.contract for holding in found.missing] == ["on_demand"]
    assert {(holding.contract, holding.gpus) for holding in found.unplanned} == {
        ("interruptible", 4),
        ("on_demand", 8),
    }


def test_rentals_of_one_offer_at_one_price_are_one_holding() -> None:
    plan = a_fleet(a_machine(count=2), a_machine(storage_gb=100.0), a_machine(price_usd_per_hour=9.5))
    assert {(h.count, h.price_usd_per_hour) for h in rented_by(plan)} == {(3, 9.05), (1, 9.5)}


def priced(holdings: Any) -> dict[float, int]:
    """Machines by price."""
    return {holding.price_usd_per_hour: holding.count for holding in holdings}


def test_what_is_held_keeps_its_price_and_only_new_machines_cost_what_the_plan_says() -> None:
    held = [a_holding(price_usd_per_hour=7.5, count=2)]
    assert priced(carried_out(a_fleet(a_machine(count=3)), held)) == {7.5: 2, 9.05: 1}


def test_of_what_is_held_the_cheapest_stay_where_the_plan_needs_fewer() -> None:
    held = [a_holding(price_usd_per_hour=9.0, count=2), a_holding(price_usd_per_hour=7.5, count=2)]
    assert priced(carried_out(a_fleet(a_machine(count=3)), held)) == {7.5: 2, 9.0: 1}


def test_new_machines_cost_what_the_plan_says_of_those_that_it_does_not_take_to_be_held() -> None:
    plan = a_fleet(a_machine(price_usd_per_hour=9.5), a_machine(price_usd_per_hour=8.0, held=True))
    assert priced(carried_out(plan, [a_holding(price_usd_per_hour=8.1)])) == {8.1: 1, 9.5: 1}


def test_times_are_known_of_what_stays() -> None:
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    [holding] = carried_out(a_fleet(), [a_holding(price_usd_per_hour=7.5, expires_at=ends)])
    assert (holding.price_usd_per_hour, holding.expires_at) == (7.5, ends)


@given(HOLDINGS, HOLDINGS)
def test_after_a_plan_is_carried_out_exactly_its_machines_are_held(
    held: list[HoldingDocument], wanted: list[HoldingDocument]
) -> None:
    if wanted:
        plan = a_fleet(
            *(a_machine(h.offer_id, count=h.count, price_usd_per_hour=h.price_usd_per_hour) for h in wanted)
        )
        after = carried_out(plan, held)
        found = compared(after, plan)
        assert (found.missing, found.unplanned) == ((), ())
        assert set(carried_out(plan, after)) == set(after)


@given(HOLDINGS, HOLDINGS)
def test_losses_and_gains_explain_the_change(before: list[HoldingDocument], after: list[HoldingDocument]) -> None:
    lost, gained = beyond(before, after), beyond(after, before)
    for offer in "ab":
        assert total(before, offer) - total(lost, offer) + total(gained, offer) == total(after, offer)
        assert not (total(lost, offer) and total(gained, offer))


@given(HOLDINGS)
def test_a_plan_that_is_carried_out_misses_nothing(held: list[HoldingDocument]) -> None:
    plan = a_fleet(*(a_machine(h.offer_id, count=h.count, price_usd_per_hour=h.price_usd_per_hour) for h in held))
    if held:
        found = compared(rented_by(plan), plan)
        assert (found.missing, found.unplanned) == ((), ())
