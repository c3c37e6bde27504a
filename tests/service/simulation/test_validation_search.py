"""Which plans validation tries, and which of them it returns."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.simulation.corrections import between, on_top, stricter
from sutler.service.simulation.simulated import Configuration, configuration_of
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.simulation.validation import MOST_ROUNDS, of_configurations, validated
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver import solve
from sutler.solver.problem import Problem
from tests.service.builders import NOW, a_snapshot, an_offer
from tests.service.simulation.test_cli_simulate import estimated

H100: Configuration = ("chat", "aggregated", (("h100-sxm", 1),), 1, "bf16")
TRAFFIC = PoissonTraffic(300.0)


def translated(*, others: tuple[dict[str, Any], ...] = ()) -> Translation:
    """16 requests/s on H100s, and on what else is for rent."""
    document = estimated()
    document["models"][0]["slo"] = {"ttft_p99_s": 1.0, "tpot_p90_s": 0.05}
    for workload in document["models"][0]["workloads"]:
        workload["rate_rps"] *= 4
    offers = [an_offer(gpu="h100-sxm", gpus=1, available=8, price_usd_per_hour=2.5), *others]
    document["market"] = {"offers": a_snapshot(*offers)}
    document["objective"] = {"kind": "min_cost"}
    return to_problem(validate(ProblemDocument, document), folder=None, now=NOW)


def issued(translation: Translation, problem: Problem) -> PlanDocument:
    made = replace(translation, problem=problem)
    return issue_plan(solve(problem), made, plan_id=UUID(int=1), created_at=NOW)


def too_slow(plan: PlanDocument, *, factor: float) -> PlanDocument:
    """The plan with replicas that turn out slower than it says: as if their rates were measured."""
    slow = tuple(
        one.model_copy(update={"source": "measured", "rps": one.rps * factor, "low_rps": 0.0})
        for one in plan.evidence
    )
    return plan.model_copy(update={"evidence": slow})


@pytest.fixture(scope="module")
def translation() -> Translation:
    return translated()


@pytest.fixture(scope="module")
def first(translation: Translation) -> PlanDocument:
    return issued(translation, translation.problem)


def asked_again(
    translation: Translation,
    plan: PlanDocument,
    answer: Callable[[Problem], PlanDocument],
    *,
    traffic: PoissonTraffic = TRAFFIC,
) -> tuple[PlanDocument, list[Problem]]:
    asked: list[Problem] = []

    def solve_again(problem: Problem) -> PlanDocument:
        asked.append(problem)
        return answer(problem)

    return validated(translation.problem, plan, traffic, solve_again=solve_again), asked


@pytest.mark.slow
def test_the_best_plan_is_returned_even_where_it_is_not_the_last(
    translation: Translation, first: PlanDocument
) -> None:
    """Eight times the load that was planned for: what is asked for again misses as much, and costs more."""
    dearer = first.model_copy(update={"objective": first.objective.model_copy(update={"value": 99.0})})
    found, asked = asked_again(translation, first, lambda _: dearer, traffic=PoissonTraffic(60.0, load_multiple=8.0))
    assert asked
    assert found.objective.value == first.objective.value
    assert found.validation is not None
    assert [one.value for one in found.validation.tried][:2] == [first.objective.value, 99.0]
    assert not found.validation.meets_all_limits
    assert found.validation.derated == ()
    assert found.warnings[-1].startswith("replayed, this plan misses limits (chat: ttft p99")


@pytest.mark.slow
def test_more_of_the_same_is_tried_beside_whatever_else_there_is(translation: Translation) -> None:
    """Corrections make other GPUs look better; the plan with more H100s is asked for as well, in every round."""
    other = an_offer(offer_id="l40s", gpu="l40s", gpus=1, available=8, price_usd_per_hour=1.6)
    wider = translated(others=(other,))
    first = issued(translation, translation.problem)
    slow = too_slow(first, factor=0.6)
    found, asked = asked_again(wider, slow, lambda problem: issued(wider, problem))
    assert {offer.gpu for offer in asked[0].offers} == {"h100-sxm", "l40s"}
    assert {offer.gpu for offer in asked[1].offers} == {"h100-sxm"}
    assert found.validation is not None
    assert found.validation.meets_all_limits
    met = [one.value for one in found.validation.tried if one.meets_all_limits and one.value is not None]
    assert found.objective.value == min(met)
    assert found.validation.rounds <= 1 + 2 * MOST_ROUNDS + 2
    assert found.objective.bound is not None
    assert found.objective.bound <= min(met) + 1e-9


def test_a_problem_of_given_configurations_has_plans_of_no_other() -> None:
    cheap = an_offer(offer_id="l40s", gpu="l40s", gpus=1, available=8, price_usd_per_hour=0.1)
    eight = an_offer(offer_id="eight", gpu="h100-sxm", gpus=8, available=1, price_usd_per_hour=8.0)
    wide = translated(others=(cheap, eight))
    free = issued(wide, wide.problem)
    assert {configuration_of(replica) for replica in free.replicas} != {H100}
    same = issued(wide, of_configurations(wide.problem, {H100}))
    assert {configuration_of(replica) for replica in same.replicas} == {H100}
    two: Configuration = ("chat", "aggregated", (("h100-sxm", 2),), 1, "bf16")
    apart = issued(wide, of_configurations(wide.problem, {H100, two}))
    assert {configuration_of(replica) for replica in apart.replicas} <= {H100, two}


def test_corrections_add_up() -> None:
    served, other = (H100, "short"), (H100, "long")
    assert on_top({served: 0.5}, {served: 0.8, other: 0.9}) == {served: 0.4, other: 0.9}
    assert stricter({served: 0.5}, {served: 0.8, other: 0.9}) == {served: 0.5, other: 0.9}
    assert between({served: 0.25}, {served: 0.16, other: 0.81}) == pytest.approx({served: 0.2, other: 0.9})
