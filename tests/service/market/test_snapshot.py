"""The market as a snapshot document: machines, cards, ages, providers."""

from datetime import timedelta

import pytest

from sutler.adapters.base import LONGEST_NAME, Coverage
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import MarketDocument
from sutler.service.market.service import MarketService
from sutler.service.settings import MarketSettings
from tests.service.market.builders import (
    CONFIG,
    NOON,
    NORTH,
    SOUTH,
    Store,
    a_failure,
    an_answer,
    an_offer,
)


def machine_gpus(store: Store) -> dict[tuple[str, str], int | None]:
    """By id and contract."""
    return {(offer.offer_id, offer.contract): offer.machine_gpus for offer in store.market().offers}


def test_the_gpus_of_a_machine_are_its_distinct_cards_over_all_offers_and_contracts(store: Store) -> None:
    slices = (
        an_offer("low", gpus=2, gpu_ids=(1, 2), machine_id="m"),
        an_offer("both", gpus=4, gpu_ids=(1, 2, 3, 4), machine_id="m"),
        an_offer("bid", gpus=2, gpu_ids=(4, 9), machine_id="m", contract="interruptible"),
        an_offer("elsewhere", gpus=1, gpu_ids=(1,), machine_id="m2"),
    )
    store.poll(an_answer(*slices))
    assert machine_gpus(store) == {
        ("low", "on_demand"): 5,
        ("both", "on_demand"): 5,
        ("bid", "interruptible"): 5,
        ("elsewhere", "on_demand"): 1,
    }


def test_where_an_offer_does_not_name_its_cards_the_machine_has_the_most_that_any_offer_states(store: Store) -> None:
    store.poll(
        an_answer(an_offer("a", gpus=2, machine_id="m"), an_offer("b", gpus=4, gpu_ids=(1, 2, 3, 4), machine_id="m"))
    )
    assert set(machine_gpus(store).values()) == {4}
    store.poll(an_answer(an_offer("a", gpus=2, machine_id="m", machine_gpus=7)))
    assert set(machine_gpus(store).values()) == {7}


def test_a_machine_shrinks_when_its_cards_are_rented_in_an_offer_that_did_not_change(store: Store) -> None:
    one, other = an_offer("a", gpu_ids=(1,), machine_id="m"), an_offer("b", gpu_ids=(2,), machine_id="m")
    both = store.poll(an_answer(one, other))
    assert set(machine_gpus(store).values()) == {2}
    report = store.poll(an_answer(one))
    assert (report.opened, report.closed) == (0, 1)
    assert machine_gpus(store) == {("a", "on_demand"): 1}
    assert {offer.machine_gpus for offer in store.market(both.at).offers} == {2}


def test_a_machine_with_two_types_of_cards_reads_as_two_machines(store: Store) -> None:
    store.poll(
        an_answer(
            an_offer("h", gpu="h100-sxm", gpus=2, gpu_ids=(0, 1), machine_id="m"),
            an_offer("a", gpu="a40", gpus=1, gpu_ids=(2,), machine_id="m"),
        )
    )
    market = store.market()
    assert [(offer.gpu, offer.machine_id, offer.machine_gpus) for offer in market.offers] == [
        ("a40", "m/a40", 1),
        ("h100-sxm", "m/h100-sxm", 2),
    ]
    MarketDocument(taken_at=market.taken_at, offers=market.offers)


def test_machines_of_two_types_stay_apart_however_long_their_names(store: Store) -> None:
    names = ["m" * (LONGEST_NAME - 1) + last for last in "xy"]
    offers = [an_offer(f"{name[-1]}{gpu}", gpu=gpu, machine_id=name) for name in names for gpu in ("h100-sxm", "a40")]
    store.poll(an_answer(*offers))
    market = store.market()
    assert len({offer.machine_id for offer in market.offers}) == 4
    MarketDocument(taken_at=market.taken_at, offers=market.offers)


def test_machines_of_two_providers_with_one_name_are_two(store: Store) -> None:
    store.poll(an_answer(an_offer("a", gpu_ids=(1,), machine_id="m")))
    store.poll(an_answer(an_offer("a", gpu_ids=(2,), machine_id="m", gpu="a40")), cloud=SOUTH)
    assert [(offer.machine_id, offer.machine_gpus) for offer in store.market().offers] == [("m", 1), ("m", 1)]


def test_every_field_of_an_offer_comes_back_as_it_went_in(store: Store) -> None:
    offer = an_offer(
        "ünï 1", 7.25, gpus=4, machine_id="m", machine_gpus=4, gpu_ids=(3, 4, 5, 1_000_000), site="s", region="US-TX",
        reliability_fraction=0.991, intra_machine_gb_per_s=450.0, inter_machine_gb_per_s=12.5, disk_gb=500.5,
        disk_included_gb=8.0, disk_usd_per_gb_month=0.1, inet_down_gb_per_s=0.125, cuda_max=12.8, open_ports=65_536,
        divisible=True, availability_basis="lower_bound",
    )  # fmt: skip
    store.poll(an_answer(offer))
    (found,) = store.market().offers
    names = [name for name in type(offer).__slots__ if name != "feed"]
    assert {name: getattr(found, name) for name in names} == {name: getattr(offer, name) for name in names}
    assert (found.provider, found.observed_at) == ("north", store.time.now())


def test_each_offer_says_when_the_last_poll_spoke_of_it(store: Store) -> None:
    store.poll(an_answer(an_offer("x", feed="x"), an_offer("y", feed="y"), an_offer("dear", 9.0, feed="x")))
    store.poll(an_answer(an_offer("x", feed="x"), covered=(Coverage("x", 5.0, rows_read=1),)))
    store.poll(a_failure())
    seen = {offer.offer_id: offer.observed_at for offer in store.market().offers}
    first, second = NOON + timedelta(seconds=60), NOON + timedelta(seconds=120)
    assert seen == {"x": second, "y": first, "dear": first}
    assert store.market().last_seen == {"north": second}


def test_providers_can_be_asked_for_by_name(store: Store) -> None:
    store.poll(an_answer(an_offer("a")))
    store.poll(an_answer(an_offer("b")), cloud=SOUTH)
    market = store.market(None, "south")
    assert [offer.offer_id for offer in market.offers] == ["b"]
    assert set(market.last_seen) == {"south"}


def test_before_the_first_poll_there_was_nothing(store: Store) -> None:
    store.poll(an_answer(an_offer("a")))
    market = store.market(NOON)
    assert (market.offers, market.last_seen, market.taken_at) == ((), {}, NOON)


def a_service(store: Store) -> MarketService:
    settings = MarketSettings(("lium",), {"lium": CONFIG})
    return MarketService(store.engine, settings, store.poller, store.time.now)


def test_a_provider_report_says_how_the_last_poll_went_and_who_was_never_asked(store: Store) -> None:
    store.poll(an_answer(an_offer("a"), an_offer("list", available=0, availability_basis="list")))
    seen_at = store.time.now()
    store.poll(a_failure("quota", wait_s=900))
    north, lium = a_service(store).provider_reports()
    assert north.last_poll is not None
    assert (north.provider, north.last_poll.outcome, north.last_seen_at) == ("north", "quota", seen_at)
    assert (north.failures_in_a_row, north.offers) == (1, 1)
    assert (lium.provider, lium.last_poll, lium.next_poll_at) == ("lium", None, None)


def test_providers_are_polled_side_by_side_and_reported_in_the_order_asked(store: Store) -> None:
    store.clouds.answers.update(north=an_answer(an_offer("a")), south=a_failure())
    reports = list(a_service(store).poll([SOUTH, NORTH]))
    assert [(report.provider, report.poll.outcome) for report in reports] == [("south", "retry"), ("north", "ok")]


def test_an_unknown_provider_is_refused_with_those_there_are(store: Store) -> None:
    with pytest.raises(DocumentError, match="vastai"):
        a_service(store).providers(["nimbus"])


def test_history_ends_after_it_begins(store: Store) -> None:
    with pytest.raises(DocumentError, match="must be after since"):
        a_service(store).history("a40", contract="on_demand", since=NOON, until=NOON, points=3)
