"""Where machines were lost of late: which places are avoided, and for how long."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from sutler.service.deployments.holdings.lives import Loss
from sutler.service.deployments.replanning.avoiding import Avoided, avoided, is_freed, left_out
from tests.service.deployments.replanning.builders import START, an_offer, an_offer_of

FIRST_S = 900.0
FIRST = timedelta(seconds=FIRST_S)
MINUTE = timedelta(minutes=1)


def a_loss(after: timedelta = timedelta(), count: int = 1, **others: Any) -> Loss:
    """Of an interruptible H100 in Oslo, on no machine that is known."""
    given: dict[str, Any] = {
        "provider": "acme",
        "offer_id": "1",
        "contract": "interruptible",
        "gpu": "h100-sxm",
        "machine_id": None,
        "host_id": None,
        "region": "oslo",
    }
    return Loss(**{**given, **others}, at=START + after, count=count)


def told(found: Sequence[Avoided]) -> dict[str, float]:
    """Seconds from the start until which each place is avoided."""
    return {str(one.place): (one.until - START).total_seconds() for one in found}


def after(seconds: timedelta, *losses: Loss) -> dict[str, float]:
    return told(avoided(losses, START + seconds, first_s=FIRST_S))


def test_without_a_loss_nothing_is_avoided_and_with_0_seconds_nothing_ever_is() -> None:
    assert avoided((), START, first_s=FIRST_S) == ()
    assert avoided([a_loss(count=9)], START, first_s=0.0) == ()


def test_an_interruption_of_one_of_many_alike_tells_of_all_of_them() -> None:
    assert after(MINUTE, a_loss()) == {"acme interruptible h100-sxm in oslo": FIRST_S}
    assert after(FIRST, a_loss()) == {}


def test_one_machine_that_is_lost_is_avoided_alone() -> None:
    lost = a_loss(machine_id="7", host_id="h")
    assert after(MINUTE, lost) == {"machine 7 of acme": FIRST_S}
    assert after(MINUTE, a_loss(contract="on_demand")) == {}


@pytest.mark.parametrize("contract", ["on_demand", "interruptible"])
def test_two_machines_at_about_the_same_time_tell_of_their_host_and_their_pool(contract: str) -> None:
    two = [a_loss(at * MINUTE, machine_id=str(at), host_id="h", contract=contract) for at in range(2)]
    assert after(2 * MINUTE, *two) == {
        "machine 0 of acme": FIRST_S,
        "machine 1 of acme": FIRST_S + 60,
        "host h of acme": FIRST_S + 60,
        f"acme {contract} h100-sxm in oslo": FIRST_S + 60,
    }
    apart = [a_loss(at * 2 * FIRST, machine_id=str(at), host_id="h", contract=contract) for at in range(2)]
    assert after(2 * FIRST, *apart) == {"machine 1 of acme": 3 * FIRST_S}


def test_two_pools_of_a_provider_tell_of_all_that_it_rents_out_under_that_contract() -> None:
    two = [a_loss(count=2), a_loss(MINUTE, region="rome", count=3)]
    found = avoided(two, START + MINUTE, first_s=FIRST_S)
    assert told(found)["acme interruptible"] == FIRST_S + 60
    spot, on_demand, others = (
        an_offer_of(an_offer(contract=contract, provider=provider, region="bern"))
        for contract, provider in (("interruptible", "acme"), ("on_demand", "acme"), ("interruptible", "bolt"))
    )
    assert [left_out(offer, found) for offer in (spot, on_demand, others)] == [True, False, False]


def test_three_machines_of_several_kinds_in_one_report_tell_of_all_of_a_provider() -> None:
    """On a marketplace hardly two machines are of one kind."""
    kinds: tuple[dict[str, Any], ...] = (
        {"gpu": "h100-sxm"},
        {"gpu": "l40s"},
        {"gpu": "l40s", "region": "bergen"},
        {"gpu": "a40"},
    )
    lost = [a_loss(machine_id=str(number), **kind) for number, kind in enumerate(kinds)]
    assert set(after(MINUTE, *lost[:2])) == {"machine 0 of acme", "machine 1 of acme"}
    found = avoided(lost, START + MINUTE, first_s=FIRST_S)
    (everything,) = [one for one in found if one.place.kind == "provider"]
    assert (str(everything.place), everything.machines) == ("acme interruptible", 4)
    assert (everything.until - START).total_seconds() == FIRST_S


def test_single_losses_after_a_wave_are_no_other_wave() -> None:
    """Each of them tells of its kind, which went before, and not again of all of the provider."""
    kinds: tuple[dict[str, Any], ...] = ({"gpu": "h100-sxm"}, {"gpu": "l40s"})
    wave = [a_loss(count=2, machine_id=f"{kind['gpu']} 0", **kind) for kind in kinds]
    assert "acme interruptible" in after(MINUTE, *wave)
    later = [a_loss(3 * FIRST + n * MINUTE, machine_id=f"{kind['gpu']} 1", **kind) for n, kind in enumerate(kinds)]
    places = after(3 * FIRST + 2 * MINUTE, *wave, *later)
    assert {"acme interruptible h100-sxm in oslo", "acme interruptible l40s in oslo"} <= places.keys()
    assert "acme interruptible" not in places


def test_three_machines_in_three_reports_are_three_accidents() -> None:
    kinds: tuple[dict[str, Any], ...] = ({"gpu": "h100-sxm"}, {"gpu": "l40s"}, {"gpu": "a40"})
    lost = [a_loss(number * MINUTE, machine_id=str(number), **kind) for number, kind in enumerate(kinds)]
    assert "acme interruptible" not in after(3 * MINUTE, *lost)


def test_what_fails_again_is_avoided_for_twice_as_long_and_what_has_held_begins_anew() -> None:
    losses, lengths, at = [], [], timedelta()
    for _ in range(4):
        losses.append(a_loss(at))
        (until,) = after(at, *losses).values()
        lengths.append(until - at.total_seconds())
        at = timedelta(seconds=until) + MINUTE
    assert lengths == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    held = at + 4 * timedelta(seconds=lengths[-1])
    assert set(after(held, *losses, a_loss(held)).values()) == {held.total_seconds() + FIRST_S}


def test_a_day_is_the_longest() -> None:
    losses, at = [], timedelta()
    for _ in range(12):
        losses.append(a_loss(at))
        (until,) = after(at, *losses).values()
        longest = until - at.total_seconds()
        at = timedelta(seconds=until)
    assert longest == 24 * 3600


def test_losses_that_are_reported_one_by_one_are_one_lesson() -> None:
    losses = [a_loss(n * MINUTE) for n in range(10)]
    (one,) = avoided(losses, START + 10 * MINUTE, first_s=FIRST_S)
    assert (one.until, one.machines) == (START + 9 * MINUTE + FIRST, 10)


def test_after_its_time_one_machine_is_enough_where_many_were_lost() -> None:
    many = a_loss(count=4, machine_id="1")
    again = a_loss(FIRST, machine_id="2")
    assert after(FIRST, many, again)["acme interruptible h100-sxm in oslo"] == 3 * FIRST_S


def test_that_a_time_has_ended_is_noticed_once() -> None:
    losses = [a_loss()]
    assert not is_freed(losses, START, START + FIRST - MINUTE, first_s=FIRST_S)
    assert is_freed(losses, START + MINUTE, START + FIRST, first_s=FIRST_S)
    assert not is_freed(losses, START + FIRST, START + 2 * FIRST, first_s=FIRST_S)


@pytest.mark.parametrize(
    ("where", "is_there"),
    [
        ({}, True),
        ({"region": None}, False),
        ({"gpu": "rtx-4090"}, False),
        ({"contract": "on_demand"}, False),
        ({"provider": "bolt"}, False),
        ({"offer_id": "another"}, True),
    ],
)
def test_a_pool_has_the_offers_of_its_gpu_region_and_contract(where: dict[str, Any], is_there: bool) -> None:
    offer = an_offer_of(an_offer(**{"region": "oslo", "contract": "interruptible", **where}))
    assert left_out(offer, avoided([a_loss()], START, first_s=FIRST_S)) == is_there


def test_a_machine_has_all_offers_on_it_whatever_their_contract() -> None:
    found = avoided([a_loss(machine_id="7")], START, first_s=FIRST_S)
    offers = [an_offer_of(an_offer("slice", machine_id=machine, machine_gpus=1)) for machine in ("7", "8")]
    assert [left_out(offer, found) for offer in offers] == [True, False]
