"""A list of precisions from the problem document to the commands: each replica is started at its own."""

from uuid import UUID

import pytest

from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.fields import document_json
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.export import exported
from sutler.service.simulation.simulated import Choices, simulated
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_plan import served_models, solver_plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.verify import verify
from tests.service.builders import NOW, a_model, a_problem, a_snapshot, a_workload, an_offer
from tests.service.export.commands import in_shell


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    """A lone H100 holds the 70B model in 4 bits alone; four L40Ss are faster with 8."""
    offers = [
        an_offer(offer_id="one", gpus=1, price_usd_per_hour=2.0),
        an_offer(offer_id="four", gpu="l40s", gpus=4, price_usd_per_hour=2.0),
    ]
    workload = a_workload(input_tokens=1000, output_tokens=200, rate_rps=1.0)
    model = a_model(model="llama-3.3-70b", precision=["int4", "fp8"], workloads=[workload])
    document = a_problem(
        models=[model], market={"offers": a_snapshot(*offers)}, throughput={}, budget_usd_per_hour=4.0
    )
    translation = to_problem(validate(ProblemDocument, document), folder=None, now=NOW)
    found = solve(translation.problem)
    assert verify(translation.problem, found) == ()
    return PlanDocument.model_validate_json(
        document_json(issue_plan(found, translation, plan_id=UUID(int=1), created_at=NOW))
    )


def test_every_replica_is_started_at_its_precision_from_its_checkpoint(plan: PlanDocument) -> None:
    by_id = {replica.id: replica for replica in plan.replicas}
    assert {replica.precision for replica in by_id.values()} == {"int4", "fp8"}
    started = [words for _, words in in_shell(exported(plan, "vllm").content)]
    loaded = {words[2]: "--quantization" in words for words in started}
    assert loaded == {"RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": False, "meta-llama/Llama-3.3-70B-Instruct": True}
    assert {replica.checkpoint for replica in by_id.values()} == {"RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", None}
    assert any("already at int4" in warning for warning in plan.warnings)
    assert not any("already at fp8" in warning for warning in plan.warnings)


def test_keys_tell_the_precisions_apart(plan: PlanDocument) -> None:
    assert sorted(part.key.split("/")[2] for part in keyed(plan).replicas) == ["fp8", "int4"]


def test_each_is_simulated_at_its_own(plan: PlanDocument) -> None:
    """At int4 the replica that was planned at fp8 would be another one."""
    swapped = tuple(replica.model_copy(update={"precision": "int4"}) for replica in plan.replicas)
    own, other = (
        simulated(one, PoissonTraffic(60.0), Choices()).summary
        for one in (plan, plan.model_copy(update={"replicas": swapped}))
    )
    assert own != other


def test_what_runs_is_read_back_at_its_own(plan: PlanDocument) -> None:
    assert served_models(plan)["chat"].precisions == ("int4", "fp8")
    assert [replica.precision for replica in solver_plan(plan).replicas] == [r.precision for r in plan.replicas]
