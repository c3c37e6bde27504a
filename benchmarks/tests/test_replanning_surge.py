"""Table 7 of arXiv 2502.00722 on our estimates: what replanning brings back, in the order it has to come in."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.replanning_surge import (
    LOST_GPUS,
    SURGE,
    Changed,
    composition,
    dearest,
    lost,
    paper_case,
    remaining,
    surged,
    with_surge,
    without,
)
from sutler.solver.plan import Rental

CLOSE = 1 + 1e-6


@pytest.mark.parametrize("case", [surged, lost])
def test_each_step_of_replanning_carries_no_less_than_the_one_before(case: Callable[..., Changed]) -> None:
    row = case(stages=2).row
    assert row["rerouted_rps"] is not None
    assert row["bound_rps"] is not None
    assert row["old_plan_rps"] <= row["rerouted_rps"] * CLOSE
    assert row["rerouted_rps"] <= row["replanned_rps"] * CLOSE
    assert row["replanned_rps"] <= row["bound_rps"] * CLOSE


def test_after_a_loss_re_routing_helps_and_other_machines_help_more() -> None:
    changed = lost(stages=2)
    row = changed.row
    assert row["rerouted_rps"] is not None
    assert row["old_plan_rps"] * 1.02 < row["rerouted_rps"] < row["replanned_rps"] / 1.02
    assert row["replanned_rps"] < row["before_rps"]
    assert changed.after.cost_usd_per_hour is not None
    assert changed.after.cost_usd_per_hour <= 30.0 * CLOSE


def test_what_is_lost_is_rented_by_no_later_plan() -> None:
    changed = lost(stages=2)
    before, after = composition(changed.before), composition(changed.after)
    assert before["h100"] >= LOST_GPUS
    assert after.get("h100", 0) <= 8 - LOST_GPUS


def test_a_surge_makes_short_outputs_more_frequent_and_nothing_else() -> None:
    calm = paper_case().models[0].workloads
    busy = with_surge(paper_case()).models[0].workloads
    factors = {
        workload.output_tokens: found.demand / workload.demand for workload, found in zip(calm, busy, strict=True)
    }
    assert factors == {18: pytest.approx(SURGE), 253: 1.0, 510: 1.0}


def rental(name: str, *, gpus: int, count: int, usd_per_gpu: float) -> Rental:
    return Rental(name, "cloud", "cloud", name, gpus, count, usd_per_gpu * gpus, "on_demand")


def test_the_dearest_gpus_are_lost_machine_by_machine() -> None:
    rentals = (rental("cheap", gpus=4, count=1, usd_per_gpu=1.0), rental("dear", gpus=2, count=3, usd_per_gpu=3.0))
    gone = dearest(rentals, 4)
    assert [(each.offer_id, each.gpus, each.count) for each in gone] == [("dear", 2, 1), ("dear", 2, 1)]
    assert {(each.offer_id, each.count) for each in without(rentals, gone)} == {("cheap", 1), ("dear", 1)}


def test_where_too_few_of_the_dearest_are_rented_the_next_dearest_go_too() -> None:
    rentals = (rental("cheap", gpus=1, count=8, usd_per_gpu=1.0), rental("dear", gpus=2, count=1, usd_per_gpu=3.0))
    assert [each.offer_id for each in dearest(rentals, 4)] == ["dear", "cheap", "cheap"]


def test_the_market_has_as_many_gpus_less_as_are_rented_at_the_same_price_each() -> None:
    offers = tuple(offer for offer in paper_case().offers if offer.gpu == "4090")
    taken = [replace(rental("4090", gpus=4, count=1, usd_per_gpu=0.53), offer_id=offers[0].offer_id)]
    left = remaining(offers, taken)
    assert sum(offer.gpus * offer.available for offer in left) == 12
    assert [offer.price_usd_per_hour / offer.gpus for offer in left] == pytest.approx([0.53] * len(left))
