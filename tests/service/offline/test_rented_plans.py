"""Applications on what is for rent: what is chosen, what it costs, and what is said where nothing will do."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sutler.service.cli.terminal.output import show
from sutler.service.cli.views.offline.plan import plan_view
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import document_json
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import json_schema
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.planning import compared, planned
from sutler.service.offline.simulating import simulated
from sutler.service.offline.translate import translate
from sutler.solver.units import HOURS_PER_MONTH
from tests.service.builders import NOW, a_snapshot, an_offer
from tests.service.offline.builders import an_asker, read_application
from tests.service.offline.plan_builders import PLAN_ID, a_small_application

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[3] / "examples"
START_UP_S = 100.0


def an_l40s(gpus: int = 1, **others: Any) -> dict[str, Any]:
    given = {"offer_id": f"l40s-{gpus}", "gpu": "l40s", "gpus": gpus, "price_usd_per_hour": 0.9 * gpus}
    return an_offer(**{**given, **others})


def a_rented_application(*offers: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Two models with 100 and 200 requests."""
    usual = {
        "models": [an_asker(count=100), an_asker("two", 200)],
        "hardware": None,
        "market": {"offers": a_snapshot(*(offers or (an_l40s(1), an_l40s(2))))},
        "rental": {"start_up_s": START_UP_S},
        "search": {"tensor_parallel": [1, 2]},
    }
    return a_small_application(**{**usual, **others})


def the_cheapest() -> OfflinePlanDocument:
    return planned_rented(**min_cost(3600))


def the_fastest() -> OfflinePlanDocument:
    return planned_rented(**min_time(budget_usd=5))


def planned_rented(*offers: dict[str, Any], **others: Any) -> OfflinePlanDocument:
    """As the planner has it, which is asked once for each application."""
    return _planned(json.dumps(a_rented_application(*offers, **others)))


@cache
def _planned(application: str) -> OfflinePlanDocument:
    document = validate(ApplicationDocument, json.loads(application))
    market = market_of(document, folder=None, now=NOW)
    return planned(translate(document, folder=None), market=market, plan_id=PLAN_ID, created_at=NOW)


def min_cost(deadline_s: float, **others: Any) -> dict[str, Any]:
    return {"objective": {"kind": "min_cost", "deadline_s": deadline_s}, **others}


def min_time(**others: Any) -> dict[str, Any]:
    return {"objective": {"kind": "min_time", **others}}


def test_the_cheapest_plan_counts_usd_and_its_bill_adds_up() -> None:
    plan = the_cheapest()
    jsonschema.Draft202012Validator(json_schema("offline-plan")).validate(json.loads(document_json(plan)))
    assert plan.status == "feasible"
    assert plan.cost_usd == pytest.approx(sum(rental.usd for rental in plan.rentals))
    for rental in plan.rentals:
        assert rental.usd == pytest.approx(rental.count * rental.price_usd_per_hour * rental.billed_s / 3600)
        assert rental.billed_s == pytest.approx(START_UP_S + (plan.makespan_s or 0.0), abs=1.0)
    assert plan.objective.kind == "min_cost"
    assert plan.objective.value == plan.cost_usd
    assert plan.objective.bound is not None
    assert plan.cost_usd is not None
    assert plan.objective.bound <= plan.cost_usd
    hosts = {island.host for island in plan.hardware.islands} if plan.hardware else set()
    assert sorted(host for rental in plan.rentals for host in rental.hosts) == sorted(hosts)


def test_times_of_objective_bound_and_front_count_from_the_order_and_stages_from_the_start() -> None:
    plan = the_fastest()
    assert plan.makespan_s is not None
    assert plan.objective.value == pytest.approx(START_UP_S + plan.makespan_s)
    assert plan.objective.bound is not None
    assert START_UP_S < plan.objective.bound <= START_UP_S + plan.makespan_s
    assert plan.stages[0].start_s == 0.0
    assert plan.stages[-1].end_s == pytest.approx(plan.makespan_s)
    assert plan.objective.value in [choice.makespan_s for choice in plan.frontier]
    assert plan.cost_usd in [choice.cost_usd for choice in plan.frontier]


def test_the_front_has_the_fast_and_the_cheap_whatever_is_wanted() -> None:
    offers = (an_l40s(1), an_offer(offer_id="h", gpu="h100-sxm", gpus=2, price_usd_per_hour=6.0))
    cheap, fast = planned_rented(*offers, **min_cost(3600)), planned_rented(*offers, **min_time(budget_usd=5))
    for plan in (cheap, fast):
        assert [choice.gpu for choice in plan.frontier] == ["h100-sxm", "l40s"]
        assert plan.frontier[0].machines == "1 × (2 × h100-sxm)"
    assert [rental.gpu for rental in (*cheap.rentals, *fast.rentals)] == ["l40s", "h100-sxm"]


def test_what_people_read_names_both_origins(capsys: pytest.CaptureFixture[str]) -> None:
    plan = the_fastest()
    show(*plan_view(plan))
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert "after the order" in first
    assert f"begin {START_UP_S:.1f} s after it" in first
    assert second.startswith("No choice is faster than ")


def test_storage_for_the_weights_is_in_the_price() -> None:
    offer = an_l40s(1, disk_gb=200, disk_included_gb=10, disk_usd_per_gb_month=0.2)
    (rental,) = planned_rented(offer, **min_cost(3600)).rentals
    assert rental.storage_gb == pytest.approx(2 * 13.5, rel=0.01)
    assert rental.storage_usd_per_hour == pytest.approx((rental.storage_gb - 10) * 0.2 / HOURS_PER_MONTH)
    assert rental.price_usd_per_hour == pytest.approx(0.9 + rental.storage_usd_per_hour)


def test_minimum_rentals_and_increments_are_billed() -> None:
    (hourly,) = planned_rented(an_l40s(1), **min_cost(3600), rental={"minimum_s": 3600}).rentals
    assert hourly.usd == pytest.approx(0.9)
    (rounded,) = planned_rented(an_l40s(1), **min_cost(3600), rental={"billing_increment_s": 60}).rentals
    assert rounded.billed_s % 60 == 0


def test_machines_download_weights_as_fast_as_their_offer_says() -> None:
    plan = planned_rented(an_l40s(1, inet_down_gb_per_s=0.5), **min_cost(3600))
    assert plan.hardware is not None
    assert plan.hardware.loading.download_gb_per_s == 0.5
    replica = plan.stages[0].models[0].replicas[0]
    assert replica.ready_s > 13.5 / 0.5


@pytest.mark.parametrize(
    ("others", "constraint", "unit", "available"),
    [
        pytest.param(min_cost(101), "deadline", "seconds", 101),
        (min_time(budget_usd=0.01), "budget", "usd", 0.01),
        pytest.param(min_time(budget_usd_per_hour=0.5), "budget_per_hour", "usd_per_hour", 0.5),
        ({"market": {"offers": a_snapshot(an_l40s(2))}, "limits": {"max_gpus": 1}}, "gpus", "gpus", 1),
        ({"market": {"offers": a_snapshot(an_l40s(1, disk_gb=20))}}, "disk", "gb", 20),
        ({"models": [an_asker(model="llama-2-70b")]}, "memory/one", "gb", 96),
    ],
)
def test_where_nothing_will_do_the_limit_and_what_it_would_take_are_named(
    others: dict[str, Any], constraint: str, unit: str, available: float
) -> None:
    plan = planned_rented(**others)
    assert (plan.status, plan.rentals, plan.hardware) == ("infeasible", (), None)
    (conflict,) = plan.conflicts
    assert (conflict.constraint, conflict.unit, conflict.available) == (constraint, unit, available)
    assert conflict.needed > conflict.available


def test_what_it_would_take_is_enough() -> None:
    (conflict,) = planned_rented(an_l40s(1), **min_cost(101)).conflicts
    assert planned_rented(an_l40s(1), **min_cost(conflict.needed * 1.001)).status == "feasible"


def test_a_rented_plan_is_simulated_as_it_was_planned() -> None:
    plan = the_cheapest()
    assert simulated(plan).makespan_s == plan.makespan_s


def test_strategies_are_compared_on_what_is_rented_best() -> None:
    document = validate(ApplicationDocument, a_rented_application(an_l40s(1), **min_cost(3600)))
    market = market_of(document, folder=None, now=NOW)
    found = compared(translate(document, folder=None), market=market, created_at=NOW)
    assert (found.hardware.gpu, len(found.strategies)) == ("l40s", 4)
    poor = validate(ApplicationDocument, a_rented_application(**min_cost(101)))
    with pytest.raises(DocumentError, match="deadline"):
        compared(translate(poor, folder=None), market=market, created_at=NOW)


def test_the_example_for_rent_reads_its_market() -> None:
    document = read_application(EXAMPLES / "offline_rented.yaml")
    market = market_of(document, folder=EXAMPLES, now=NOW)
    assert market is not None
    assert {offer.gpu for offer in market.offers} == {"a100-sxm4-80gb", "h100-sxm", "l40s"}
    assert all(offer.inet_down_gb_per_s for offer in market.offers)
    assert all(offer.contract == "on_demand" for offer in market.offers)
