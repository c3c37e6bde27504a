"""Hyperstack's stocks: real counts per machine size that all draw on the same cards."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.adapters.base import USUAL_PRICE_BAND, Coverage, Offer, Poll
from sutler.adapters.hyperstack import PROVIDER, parse
from tests.adapters.builders import DELETE, KEY
from tests.adapters.cloud_bodies import hyperstack_model, hyperstack_prices, hyperstack_stocks, poll_of_cloud
from tests.adapters.server import Received

PRICES = hyperstack_prices(H100_80G_PCIe_NVLink=1.95, L40=1.0)


def found_in(*models: Any, prices: Any = PRICES) -> Poll:
    return parse(hyperstack_stocks(*models), prices, price_band=USUAL_PRICE_BAND)


def machines(found: Poll) -> dict[int, int]:
    return {offer.gpus: offer.available for offer in found.offers if offer.available}


def counted(**sizes: Any) -> dict[str, Any]:
    """`x8=3` is three machines of 8."""
    return hyperstack_model("L40", configurations={f"{name[1:]}x": count for name, count in sizes.items()})


def test_machines_are_stated_by_size_without_counting_a_card_twice() -> None:
    # 45 of 8 hold 90 of 4; 98 - 90 = 8 more of 4. Both hold 196 of 2, so 1 more of 2, and 394 of 1, so 2 more of 1.
    found = found_in(hyperstack_model())
    assert machines(found) == {8: 45, 4: 8, 2: 1, 1: 2}
    assert sum(gpus * available for gpus, available in machines(found).items()) == 396
    assert found.kept == 4
    assert found.covered == (Coverage("stock", None, 1), Coverage("list", None, 1))


def test_an_offer_is_a_divisible_machine_at_the_price_of_its_gpus() -> None:
    listed, largest, *_, single = found_in(hyperstack_model()).offers
    assert largest == Offer(
        offer_id="CANADA-1/H100-80G-PCIe-NVLink/8x",
        feed="stock/CANADA-1/H100-80G-PCIe-NVLink/",
        gpu="h100-pcie",
        gpus=8,
        available=45,
        price_usd_per_hour=15.6,
        contract="on_demand",
        divisible=True,
        site="hyperstack/CANADA-1",
        region="CANADA-1",
    )
    assert (single.gpus, single.divisible, single.price_usd_per_hour) == (1, False, 1.95)
    assert (listed.offer_id, listed.available, listed.availability_basis) == ("list/H100-80G-PCIe-NVLink", 0, "list")
    assert (listed.gpus, listed.price_usd_per_hour) == (1, 1.95)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"x1": 3}, {1: 3}),
        ({"x1": 7, "x2": 3, "x4": 1, "x8": 0}, {4: 1, 2: 1, 1: 1}),
        ({"x1": 10, "x2": 5, "x4": 2, "x8": 1, "x10": 1}, {10: 1}),
        ({"x1": 2, "x8": 3}, {8: 3}),
        ({"x1": "4", "x2": None, "whole": 9}, {1: 4}),
    ],
)
def test_larger_machines_hold_the_smaller_sizes(sizes: dict[str, Any], expected: dict[int, int]) -> None:
    assert machines(found_in(counted(**sizes))) == expected


def test_no_count_above_zero_is_no_stock_and_needs_no_price() -> None:
    found = found_in(counted(x1=0, x8=0), prices=[])
    assert (found.offers, found.rejected, found.not_available) == ((), (), {"no_stock": 1})


@pytest.mark.parametrize(
    ("available", "count"),
    [("200+", 200), ("12", 12), (3, 3), ("0", None), ("20000", 10_000), ("999999999+", 10_000)],
)
def test_without_sizes_the_stated_number_of_gpus_is_a_lower_bound(available: object, count: int | None) -> None:
    found = found_in(hyperstack_model("L40", configurations=DELETE, available=available))
    assert machines(found) == ({} if count is None else {1: count})
    assert {offer.availability_basis for offer in found.offers if offer.available} <= {"lower_bound"}


SIZES = st.dictionaries(st.sampled_from(["1x", "2x", "4x", "8x"]), st.integers(0, 60), min_size=1)


@given(on_demand=SIZES, spot=SIZES)
def test_a_model_and_its_spot_model_never_have_more_cards_than_the_larger_of_them(
    on_demand: dict[str, int], spot: dict[str, int]
) -> None:
    def stock(**configurations: dict[str, int]) -> list[Offer]:
        models = [hyperstack_model(name, configurations=sizes) for name, sizes in configurations.items()]
        found = found_in(*models, prices=hyperstack_prices(L40=1, L40_spot=0.5))
        return [offer for offer in found.offers if offer.available]

    def cards(offers: list[Offer]) -> int:
        shared = {offer.machine_id: offer.gpus for offer in offers if offer.machine_id}
        return sum(shared.values()) + sum(offer.available * offer.gpus for offer in offers if not offer.machine_id)

    both = stock(**{"L40": on_demand, "L40-spot": spot})
    alone = [cards(stock(**{name: sizes})) for name, sizes in (("L40", on_demand), ("L40-spot", spot))]
    assert cards(both) <= max(alone)
    assert cards([offer for offer in both if offer.contract == "on_demand"]) == alone[0]
    assert cards([offer for offer in both if offer.contract == "interruptible"]) <= alone[1]
    assert len({offer.key for offer in both}) == len(both)


def test_machines_that_both_contracts_have_are_stated_as_the_same() -> None:
    found = found_in(
        hyperstack_model("L40", configurations={"1x": 9, "8x": 1}),
        hyperstack_model("L40-spot", configurations={"1x": 14, "8x": 1}),
        prices=hyperstack_prices(L40=1, L40_spot="0.5"),
    )
    stated = [(o.offer_id, o.contract, o.machine_id, o.available) for o in found.offers if o.available]
    assert stated == [
        ("CANADA-1/L40/8x/1", "on_demand", "CANADA-1/l40/8x/1", 1),
        ("CANADA-1/L40/1x/1", "on_demand", "CANADA-1/l40/1x/1", 1),
        ("CANADA-1/L40-spot/8x/1", "interruptible", "CANADA-1/l40/8x/1", 1),
        ("CANADA-1/L40-spot/1x/1", "interruptible", "CANADA-1/l40/1x/1", 1),
        ("CANADA-1/L40-spot/1x", "interruptible", None, 5),
    ]
    assert {(o.divisible, o.machine_gpus) for o in found.offers if o.machine_id} == {(True, 8), (False, 1)}


def test_a_spot_model_is_interruptible() -> None:
    found = found_in(
        hyperstack_model("A100-80G-PCIe-spot", configurations={"1x": 2}),
        prices=hyperstack_prices(A100_80G_PCIe=1.35, A100_80G_PCIe_spot="1.08"),
    )
    assert {(o.gpu, o.contract, o.price_usd_per_hour) for o in found.offers} == {
        ("a100-pcie-80gb", "interruptible", 1.08)
    }


@pytest.mark.parametrize(
    "prices",
    [
        [{"name": "L40", "value": "1.0"}],
        [{"name": "l40 ", "price": 1}],
        {"pricebook": [{"name": "L40", "value": 1.0}]},
        {"data": [{"name": "L40", "value": 1.0}]},
        {"L40": 1.0},
        {"L40": "1.0", "status": True},
        {"L40": {"value": 1.0}},
    ],
)
def test_the_price_book_may_be_a_list_or_an_object(prices: Any) -> None:
    found = found_in(counted(x2=1), prices=prices)
    assert {offer.price_usd_per_hour for offer in found.offers if offer.available} == {2.0}


@pytest.mark.parametrize("prices", [None, "none", 3, [1, 2], [{"sku": "L40"}], {"error": None}])
def test_a_price_book_of_another_shape_is_bad_shape(prices: Any) -> None:
    found = poll_of_cloud(PROVIDER, {"/v1/pricebook": prices})
    assert (found.outcome, found.covered) == ("bad_shape", ())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "H100-80G-MIG"}, "unknown_gpu"),
        ({"model": None}, "bad_shape"),
        ({"model": "A40"}, "no_on_demand_price"),
        ({"configurations": {"1x": "many"}}, "bad_number"),
        ({"configurations": {"1x": -1}}, "bad_number"),
        ({"configurations": {"1x": 1.5}}, "bad_number"),
        ({"configurations": None, "available": "plenty"}, "bad_number"),
        ({"configurations": {"8 cards": 3}, "available": None}, "bad_number"),
        ({"configurations": {"8x": None}, "available": DELETE}, "bad_number"),
    ],
)
def test_a_bad_model_is_rejected_alone(changes: dict[str, Any], reason: str) -> None:
    found = found_in(hyperstack_model(**changes), 7, counted(x1=1))
    assert [row.reason for row in found.rejected] == [reason, "bad_shape"]
    assert machines(found) == {1: 1}


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        ("free", "bad_number"),
        (0, "price_nonpositive"),
        (0.002, "price_too_low"),
        (99, "price_too_high"),
        (None, "no_on_demand_price"),
    ],
)
def test_a_bad_price_rejects_its_models(price: object, reason: str) -> None:
    found = found_in(counted(x1=1), prices=[{"name": "L40", "value": price}])
    assert [row.reason for row in found.rejected] == [reason]


def test_a_bad_region_costs_only_itself_and_other_stocks_are_passed_over() -> None:
    stocks = {
        "stocks": [
            "nowhere",
            {"region": "NORWAY-1", "stock-type": "GPU", "models": None},
            {"region": "NORWAY-1", "stock-type": "CPU", "models": [{"model": "n1-cpu"}]},
            *hyperstack_stocks(counted(x1=1))["stocks"],
        ]
    }
    found = parse(stocks, PRICES, price_band=USUAL_PRICE_BAND)
    assert [row.reason for row in found.rejected] == ["bad_shape", "bad_shape"]
    assert machines(found) == {1: 1}


def test_the_key_travels_in_its_own_header() -> None:
    asked: list[Received] = []
    found = poll_of_cloud(PROVIDER, seen=asked.append)
    assert [request.headers["api_key"] for request in asked] == [KEY, KEY]
    assert (found.kept, found.requests) == (4, 2)


def test_no_stocks_is_an_answer() -> None:
    found = poll_of_cloud(PROVIDER, {"/v1/core/stocks": {"stocks": []}})
    assert (found.outcome, found.kept) == ("ok", 0)
    assert found.covered == (Coverage("stock", None, 0), Coverage("list", None, 0))


def test_sizes_that_cannot_be_read_are_not_none() -> None:
    found = found_in(hyperstack_model("L40", configurations={"8 cards": 3}, available="24+"))
    assert machines(found) == {1: 24}


@pytest.mark.parametrize("available", [None, "plenty", -1])
def test_a_model_that_does_not_tell_its_stock_is_unknown_and_not_none(available: object) -> None:
    silent = hyperstack_model(configurations=DELETE, available=available)
    assert [coverage.feed_prefix for coverage in found_in(silent, counted(x1=0)).covered] == [
        "stock/CANADA-1/L40/",
        "list",
    ]
    assert [coverage.feed_prefix for coverage in found_in(silent).covered] == ["list"]


def test_a_price_book_with_other_names_ends_no_offer() -> None:
    models = [hyperstack_model(), counted(x1=2), hyperstack_model("A100-80G-PCIe", configurations={"1x": 0})]
    found = found_in(*models, prices=[{"name": "gpu-l40-hourly", "value": 1.0}])
    assert (found.kept, [row.reason for row in found.rejected]) == (0, ["no_on_demand_price"] * 2)
    assert found.covered == (Coverage("stock/CANADA-1/A100-80G-PCIe/", None, 1), Coverage("list", None, 0))


def test_a_region_that_cannot_be_read_is_not_empty() -> None:
    stocks = hyperstack_stocks(counted(x1=1))
    stocks["stocks"].append({"region": "NORWAY-1", "stock-type": "GPU", "gpus": []})
    covered = parse(stocks, PRICES, price_band=USUAL_PRICE_BAND).covered
    assert [coverage.feed_prefix for coverage in covered] == ["stock/CANADA-1/L40/", "list"]


def test_rejected_rows_are_named_by_region_and_model() -> None:
    stocks = {
        "stocks": [
            *hyperstack_stocks(hyperstack_model("A40"), hyperstack_model("A16"), 7)["stocks"],
            *hyperstack_stocks(hyperstack_model("A40"), region="NORWAY-1")["stocks"],
            {"region": "US-1", "models": 4},
        ]
    }
    found = parse(stocks, PRICES, price_band=USUAL_PRICE_BAND)
    ids = [row.offer_id for row in found.rejected]
    assert ids == ["CANADA-1/A40", "CANADA-1/A16", None, "NORWAY-1/A40", "US-1/GPU"]
