"""Where requests go while replicas are dead."""

from typing import Any, Final

import pytest

from sutler.service.documents.plan import PlanDocument
from sutler.service.export.losses import loss_that_happened, served_fraction, unserved, without
from tests.service.export.plans import plan_of, stored

LARGE: Final = {"model": "large", "workload": "chat", "fractions": {"large-0": 0.5, "large-1": 0.5}}


def a_loss(name: str, lost: list[str], **fractions: float) -> dict[str, Any]:
    small = {"model": "small", "workload": "tags", "fractions": {f"small-{k[1:]}": v for k, v in fractions.items()}}
    return {
        "kind": "machine",
        "name": name,
        "replicas": lost,
        "carried_fraction": 1.0,
        "routing": [LARGE, small] if fractions else [],
    }


def a_fleet(*losses: dict[str, Any], **changes: Any) -> PlanDocument:
    """Three replicas of the model small, of which the last serves little, and two of the model large."""
    document = stored("shared_machine")
    document["routing"][1]["fractions"] = {"small-0": 0.6, "small-1": 0.3, "small-2": 0.1}
    return plan_of({**document, "losses": list(losses), **changes})


def small(plan: PlanDocument) -> dict[str, float]:
    return dict(next(route.fractions for route in plan.routing if route.model == "small"))


def test_nothing_moves_while_all_answer() -> None:
    plan = a_fleet(a_loss("m", ["small-0"], r1=0.2, r2=0.8))
    assert without(plan, set()) == plan


def test_the_share_of_the_dead_goes_to_the_rest_of_the_workload_in_proportion() -> None:
    plan = a_fleet()
    assert small(without(plan, {"small-0"})) == pytest.approx({"small-1": 0.75, "small-2": 0.25})
    assert without(plan, {"small-0"}).routing[0] == plan.routing[0]


def test_a_loss_that_has_happened_moves_it_as_planned() -> None:
    plan = a_fleet(a_loss("m", ["small-0"], r1=0.2, r2=0.8))
    assert small(without(plan, {"small-0"})) == {"small-1": 0.2, "small-2": 0.8}
    assert small(without(plan, {"small-0", "small-1"})) == {"small-2": 1.0}


def test_a_loss_of_which_something_still_answers_has_not_happened() -> None:
    plan = a_fleet(a_loss("p", ["small-0", "small-1"], r2=1.0), a_loss("shown only", ["small-0"]))
    assert loss_that_happened(plan, {"small-0"}) is None
    assert small(without(plan, {"small-0"})) == pytest.approx({"small-1": 0.75, "small-2": 0.25})


def test_of_several_losses_the_largest_counts() -> None:
    one, both = a_loss("m", ["small-0"], r1=1.0), a_loss("p", ["small-0", "large-0"], r2=1.0)
    happened = loss_that_happened(a_fleet(one, both), {"small-0", "large-0"})
    assert happened is not None
    assert happened.name == "p"


def test_where_a_workload_has_nothing_left_other_replicas_of_its_model_take_it_as_they_can() -> None:
    document = stored("shared_machine")
    document["routing"][1]["fractions"] = {"small-0": 1.0}
    for replica, sustained in zip(document["replicas"][2:], (9.0, 2.0, 6.0), strict=True):
        replica["sustained_rps"] = {"tags": sustained}
    assert small(without(plan_of(document), {"small-0"})) == pytest.approx({"small-1": 0.25, "small-2": 0.75})


def test_where_all_replicas_of_a_model_are_dead_its_weights_stay_and_that_is_known() -> None:
    plan, dead = a_fleet(), {"small-0", "small-1", "small-2", "large-1"}
    assert small(without(plan, dead)) == small(plan)
    assert unserved(plan, dead) == ["small"]
    assert unserved(plan, {"small-0"}) == []


def test_served_is_the_share_of_all_requests_that_goes_to_what_answers() -> None:
    plan = a_fleet()
    assert served_fraction(plan, set()) == pytest.approx(1.0)
    assert served_fraction(plan, {replica.id for replica in plan.replicas}) == 0.0
    rates = {replica.model: 0.0 for replica in plan.replicas}
    for replica in plan.replicas:
        rates[replica.model] += sum(replica.throughput_rps.values())
    kept = (rates["large"] / 2 + rates["small"] * 0.4) / (rates["large"] + rates["small"])
    assert served_fraction(plan, {"small-0", "large-0"}) == pytest.approx(kept)
    assert served_fraction(plan.model_copy(update={"routing": ()}), set()) == 1.0
