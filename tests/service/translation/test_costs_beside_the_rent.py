"""What plans state of traffic, downloads and storage whose price nobody stated."""

from typing import Any

import pytest

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.library.planning import plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver.market.pools import checkpoint_gb
from sutler.solver.planner import solve
from sutler.solver.replanning import StandingDeployment, Switching
from sutler.solver.replanning.switching import change_of
from tests.service.builders import NOW, a_snapshot, an_offer

RATE_RPS = 2.0
INPUT_TOKENS, OUTPUT_TOKENS = 1000.0, 200.0


def a_problem(**stated: Any) -> ProblemDocument:
    """One model of 16 GB on one card."""
    workload = {"name": "q", "input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "rate_rps": RATE_RPS}
    document = {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "llama-3.1-8b", "workloads": [workload]}],
        "market": {"offers": a_snapshot(an_offer(gpus=1, price_usd_per_hour=2.0, **stated))},
    }
    return validate(ProblemDocument, document)


def planned(**stated: Any) -> PlanDocument:
    found = plan(a_problem(**stated))
    assert found.status == "optimal"
    return found


def test_traffic_and_the_download_of_the_weights_are_stated_beside_the_price() -> None:
    (rental,) = planned(inet_down_usd_per_gb=0.01, inet_up_usd_per_gb=0.1).rentals
    requests_per_hour = RATE_RPS * 3600
    into_gb, out_of_gb = (requests_per_hour * size / 1e9 for size in (INPUT_TOKENS * 4, OUTPUT_TOKENS * 245))
    assert rental.traffic_usd_per_hour == pytest.approx(0.01 * into_gb + 0.1 * out_of_gb)
    assert rental.start_usd == pytest.approx(0.01 * 16.06, rel=1e-3)  # 8.03e9 parameters of two bytes
    assert rental.price_usd_per_hour == 2.0


def test_what_is_not_stated_is_not_known() -> None:
    (rental,) = planned().rentals
    assert (rental.traffic_usd_per_hour, rental.start_usd) == (None, None)
    (rental,) = planned(inet_down_usd_per_gb=0.0, inet_up_usd_per_gb=0.0).rentals
    assert (rental.traffic_usd_per_hour, rental.start_usd) == (0.0, 0.0)


def test_a_download_that_costs_something_is_part_of_what_a_change_costs() -> None:
    def usd(**stated: Any) -> float:
        problem = to_problem(a_problem(**stated), folder=None, now=NOW).problem
        return change_of(problem, StandingDeployment((), (), (), ()), solve(problem), Switching()).usd

    spec = to_problem(a_problem(), folder=None, now=NOW).problem.models[0].spec
    assert spec is not None
    weights_gb = checkpoint_gb(spec, "bf16") * 1.1  # with room for what comes beside the weights
    assert usd(inet_down_usd_per_gb=0.5) - usd() == pytest.approx(0.5 * weights_gb)


def test_storage_of_unknown_price_counts_as_usual_and_is_marked() -> None:
    unknown = planned(disk_gb=100.0)
    (rental,) = unknown.rentals
    assert rental.storage_gb == pytest.approx(16.06 * 1.1, rel=1e-3)
    assert rental.storage_usd_per_hour == pytest.approx(rental.storage_gb * 0.15 / 720)
    assert any("1 offers state no price for their storage: 0.15 $ per GB" in note for note in unknown.notes)


@pytest.mark.parametrize(
    "stated", [{}, {"disk_gb": 100.0, "disk_usd_per_gb_month": 0.0}, {"disk_gb": 100.0, "disk_included_gb": 100.0}]
)
def test_storage_that_is_free_included_or_not_limited_costs_nothing(stated: dict[str, Any]) -> None:
    found = planned(**stated)
    assert found.rentals[0].storage_usd_per_hour == 0
    assert not any("storage" in note for note in found.notes)
