"""Which role answers for which limit, where a plan in two phases is replayed."""

import json
from typing import Any
from uuid import UUID

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.simulation.simulated import Choices, simulated
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.simulation.validation import validated
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.problem import Derating, MeasuredStage, Problem
from tests.service.builders import NOW
from tests.service.simulation.test_cli_simulate import estimated, in_two_phases

SLOW = {"source": "measured", "rps": 4.3, "low_rps": 4.3, "high_rps": 4.3}


def planned(*, slow: str | None) -> tuple[Problem, PlanDocument]:
    """One replica that is hardly fast enough for its load of 4 requests/s, and one with time to spare."""
    problem = estimated()
    problem["models"][0]["slo"] = {"ttft_p90_s": 1.0, "tpot_p90_s": 0.2}
    translation = to_problem(validate(ProblemDocument, problem), folder=None, now=NOW)
    made = issue_plan(solve(translation.problem), translation, plan_id=UUID(int=1), created_at=NOW)
    document: dict[str, Any] = in_two_phases(json.loads(made.model_dump_json(by_alias=True)), exposed_s=0.01)
    for one in document["evidence"]:
        one.update(SLOW if one["replica"] == slow else {})
    return translation.problem, PlanDocument.model_validate_json(json.dumps(document))


def derated(problem: Problem, plan: PlanDocument) -> tuple[Derating, ...]:
    """What the problem that is solved next counts on for less."""
    asked: list[Problem] = []

    def solve_again(stricter: Problem) -> PlanDocument:
        asked.append(stricter)
        return plan.model_copy(update={"replicas": ()})

    validated(problem, plan, PoissonTraffic(600.0), solve_again=solve_again)
    return asked[0].derated if asked else ()


@pytest.mark.slow
def test_a_prefill_replica_answers_for_the_first_token() -> None:
    problem, plan = planned(slow="chat-p")
    found = derated(problem, plan)
    assert {(one.role, one.stages) for one in found} == {("prefill", (MeasuredStage("h100-sxm", 1),))}
    assert {one.workload for one in found} <= {"short", "long"}
    assert all(0 < one.fraction < 1 for one in found)


def test_a_plan_in_two_phases_that_keeps_its_limits_is_not_derated() -> None:
    assert derated(*planned(slow=None)) == ()


@pytest.mark.slow
def test_what_is_derated_is_still_as_fast() -> None:
    """The evidence of a derated configuration is lower; its engine is the same."""
    problem, plan = planned(slow="chat-p")
    prefill = derated(problem, plan)
    fractions = {one.workload: one.fraction for one in prefill}
    halved = tuple(
        one.model_copy(update={"rps": one.rps * fractions.get(one.workload, 1.0)}) if one.replica == "chat-p" else one
        for one in plan.evidence
    )
    lower = plan.model_copy(update={"evidence": halved})
    plain = simulated(plan, PoissonTraffic(60.0), Choices()).summary
    again = simulated(lower, PoissonTraffic(60.0), Choices(), derated=prefill).summary
    assert again.models[0].latencies["ttft"].mean_s == pytest.approx(plain.models[0].latencies["ttft"].mean_s)


def test_a_hand_over_to_nobody_is_refused() -> None:
    _, plan = planned(slow=None)
    broken = tuple(one.model_copy(update={"decode": "chat-9"}) for one in plan.kv_transfers)
    with pytest.raises(DocumentError, match=r"kv_transfers\[0\]"):
        simulated(plan.model_copy(update={"kv_transfers": broken}), PoissonTraffic(60.0), Choices())


def test_prompts_for_a_decode_replica_are_refused() -> None:
    _, plan = planned(slow=None)
    broken = tuple(route.model_copy(update={"fractions": {"chat-d": 1.0}}) for route in plan.routing)
    with pytest.raises(DocumentError, match=r"routing\[0\].*chat-d.*decode replica"):
        simulated(plan.model_copy(update={"routing": broken}), PoissonTraffic(60.0), Choices())
