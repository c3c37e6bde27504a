"""Plan documents for tests: three models on two pairs of GPUs, put together by hand."""

import json
from functools import cache
from typing import Any
from uuid import UUID

from sutler.service.offline.plan_issue import hardware_document, issue_offline_plan
from sutler.service.offline.plan_schema import (
    OfflinePlanDocument,
    PlacedGpu,
    PlacedReplica,
    PlannedHardware,
    SimulatedStage,
    StageModel,
)
from sutler.service.offline.translate import OfflineTranslation
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.planner import plan_application
from tests.service.builders import NOW
from tests.service.offline.builders import an_application, an_asker, translated

PLAN_ID = UUID("00000000-0000-4000-8000-000000000001")
FINISH_S = {"one": 40.0, "two": 100.0, "three": 90.0}


def a_small_application(**others: Any) -> dict[str, Any]:
    """Two models with ten requests each; planned in no time."""
    return an_application(**{"name": "small", "models": [an_asker(), an_asker("two", 20)], "edges": [], **others})


def planned_small(**others: Any) -> OfflinePlanDocument:
    """As the planner has it, which is asked once for each application."""
    return _planned(json.dumps(others))


@cache
def _planned(others: str) -> OfflinePlanDocument:
    translation = translated(**a_small_application(**json.loads(others)))
    assert translation.hardware is not None
    plan = plan_application(translation.application, translation.hardware, translation.options)
    return issue_offline_plan(plan, translation, translation.hardware, plan_id=PLAN_ID, created_at=NOW)


def hardware_of(translation: OfflineTranslation) -> Hardware:
    assert translation.hardware is not None
    return translation.hardware


def two_pairs() -> PlannedHardware:
    """GPUs 0 and 1, and GPUs 2 and 3, share fast links."""
    return hardware_document(hardware_of(translated()))


def a_replica(number: int, *gpus: int, ready_s: float, loaded: bool = True, host: int = 0) -> PlacedReplica:
    places = tuple(PlacedGpu(host=host, gpu=gpu) for gpu in gpus)
    return PlacedReplica(number=number, gpus=places, ready_s=ready_s, loaded=loaded)


def a_stage_model(model: str, *replicas: PlacedReplica) -> StageModel:
    return StageModel(
        model=model,
        data_parallel=len(replicas),
        tensor_parallel=len(replicas[0].gpus),
        replicas=replicas,
        finished_requests=3,
        written_tokens=30,
    )


def a_stage(start_s: float, end_s: float, *models: StageModel) -> SimulatedStage:
    return SimulatedStage(start_s=start_s, end_s=end_s, models=models, until=None, busy_gpu_s=10.0, loading_gpu_s=5.0)


def two_stages() -> tuple[SimulatedStage, ...]:
    """one on GPU 0 until 40 s, two on GPUs 2 and 3 all the time, three on GPUs 0 and 1 from 40 s to 90 s."""
    return (
        a_stage(
            0.0,
            40.0,
            a_stage_model("one", a_replica(0, 0, ready_s=10.0)),
            a_stage_model("two", a_replica(0, 2, 3, ready_s=20.0)),
        ),
        a_stage(
            40.0,
            100.0,
            a_stage_model("two", a_replica(0, 2, 3, ready_s=20.0, loaded=False)),
            a_stage_model("three", a_replica(0, 0, 1, ready_s=50.0)),
        ),
    )
