"""The plan document of an offline application, there and back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import numpy as np
import pytest

from sutler.service.cli.offline.reading import read_plan
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import document_json
from sutler.service.json_schemas import json_schema
from sutler.service.offline.plan_issue import Renting, issue_infeasible, issue_offline_plan
from sutler.service.offline.plan_schema import MachineChoice, OfflineConflict, OfflinePlanDocument, OfflineRental
from sutler.service.offline.planned import planned_application, planned_hardware, planned_schedule
from sutler.service.offline.translate import OfflineTranslation
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.plan import LowerBound, OfflinePlan
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import ExecutedStage, Execution, ExecutionPlan, RunningReplica, ScheduleStage
from tests.service.builders import NOW, a_snapshot
from tests.service.offline.builders import translated

PLAN_ID = UUID("00000000-0000-4000-8000-000000000001")
FIRST = ScheduleStage({0: ExecutionPlan(2, 1), 1: ExecutionPlan(1, 2)}, until_node=0, until_fraction=0.5)
SECOND = ScheduleStage({1: ExecutionPlan(2, 2)})


def a_pile() -> Pile:
    """Two requests of the first model, one of the second, which waits for both."""
    node, item, inputs, outputs, start, parents = (
        np.array(values) for values in ([0, 0, 1], [0, 1, 0], [10, 20, 40], [5, 6, 7], [0, 0, 0, 2], [0, 1])
    )
    return Pile(node, item, inputs, outputs, start, parents)


def a_plan(*, bound_s: float = 80.0) -> OfflinePlan:
    replicas = (
        RunningReplica(0, 0, ((0, 0),), 19.0, is_loaded=True),
        RunningReplica(0, 1, ((0, 1),), 19.0, is_loaded=True),
        RunningReplica(1, 0, ((0, 2), (0, 3)), 70.0, is_loaded=True),
    )
    kept = (replace(replicas[2], is_loaded=False), RunningReplica(1, 1, ((0, 0), (0, 1)), 95.0, is_loaded=True))
    stages = (
        ExecutedStage(0.0, 60.0, FIRST, replicas, (1, 0), (5, 0), 90.0, 150.0),
        ExecutedStage(60.0, 100.0, SECOND, kept, (2, 1), (11, 7), 70.0, 70.0),
    )
    finish = np.array([50.0, 60.0, 100.0])
    execution = Execution(stages, 100.0, finish - 10, finish, (60.0, 100.0))
    bound = LowerBound(bound_s, 60.0)
    return OfflinePlan("sutler", (FIRST, SECOND), execution, a_pile(), bound, {"greedy": 120.0}, 1.5, 321)


def hardware_of(translation: OfflineTranslation) -> Hardware:
    assert translation.hardware is not None
    return translation.hardware


def issued(translation: OfflineTranslation, plan: OfflinePlan, **others: Any) -> OfflinePlanDocument:
    hardware = others.pop("hardware", None) or hardware_of(translation)
    return issue_offline_plan(plan, translation, hardware, plan_id=PLAN_ID, created_at=NOW, **others)


def parsed(document: OfflinePlanDocument) -> Any:
    """As others read it, held against the schema."""
    found = json.loads(document_json(document))
    jsonschema.Draft202012Validator(json_schema("offline-plan")).validate(found)
    return found


def a_rental(**others: Any) -> OfflineRental:
    given = {"offer_id": "123", "provider": "acme", "site": None, "gpu": "a100-sxm4-80gb", "gpus": 4, "count": 1}
    money = {"price_usd_per_hour": 6.0, "contract": "on_demand", "storage_gb": 0.0, "storage_usd_per_hour": 0.0}
    return OfflineRental(**{**given, **money, "hosts": (0,), "billed_s": 240.0, "usd": 0.4, **others})


def test_the_keys_of_the_contract_are_there() -> None:
    found = parsed(issued(translated(), a_plan(), warnings=["mind the gap"]))
    assert (found["schema"], found["id"], found["revision"]) == ("sutler/offline-plan/v1", str(PLAN_ID), 1)
    assert (found["status"], found["strategy"], found["seed"]) == ("feasible", "sutler", 0)
    assert found["objective"] == {"kind": "min_time", "value": 100.0, "bound": 80.0, "relative_gap": 0.2}
    assert (found["makespan_s"], found["cost_usd"]) == (100.0, None)
    assert found["lower_bound"] == {"seconds": 80.0, "area_s": 80.0, "critical_path_s": 60.0}
    assert found["application"]["edges"][1].items() >= {"from": "summary", "to": "judge", "copies": 4}.items()
    assert found["hardware"]["islands"][1] == {"host": 0, "gpus": [2, 3], "gb_per_s": 300.0}
    assert found["hardware"]["figures"]["memory_gb"] == 80
    assert found["compared"] == [{"strategy": "greedy", "makespan_s": 120.0}]
    assert found["solver"].items() >= {"seconds": 1.5, "evaluated_schedules": 321, "hit_time_limit": False}.items()
    assert found["warnings"] == ["mind the gap"]
    assert found["rentals"] == found["frontier"] == found["conflicts"] == []


def test_schedule_and_stages_name_models() -> None:
    found = parsed(issued(translated(), a_plan()))
    assert found["schedule"] == [
        {
            "models": [
                {"model": "summary", "data_parallel": 2, "tensor_parallel": 1},
                {"model": "judge", "data_parallel": 1, "tensor_parallel": 2},
            ],
            "until": {"model": "summary", "fraction": 0.5},
        },
        {"models": [{"model": "judge", "data_parallel": 2, "tensor_parallel": 2}], "until": None},
    ]
    second = found["stages"][1]
    assert (second["start_s"], second["end_s"], second["busy_gpu_s"]) == (60.0, 100.0, 70.0)
    [judge] = second["models"]
    assert (judge["finished_requests"], judge["written_tokens"]) == (1, 7)
    assert [replica["loaded"] for replica in judge["replicas"]] == [False, True]
    assert judge["replicas"][0]["gpus"] == [{"host": 0, "gpu": 2}, {"host": 0, "gpu": 3}]


def test_models_come_with_their_work_and_times() -> None:
    summary, judge = parsed(issued(translated(), a_plan()))["models"]
    assert (summary["requests"], summary["input_tokens"], summary["output_tokens"]) == (2, 30, 11)
    assert (judge["requests"], judge["input_tokens"], judge["output_tokens"]) == (1, 40, 7)
    assert (summary["finish_s"], judge["finish_s"]) == (60.0, 100.0)
    assert list(summary["load_s"]) == ["1", "2", "4"]
    assert summary["load_s"]["1"] == pytest.approx(7.0 + 26.03 / 1.1, rel=0.01)


def test_a_plan_at_its_bound_is_optimal() -> None:
    assert issued(translated(), a_plan(bound_s=100.0)).status == "optimal"


def test_a_rented_plan_says_what_it_costs() -> None:
    market = {"offers": a_snapshot()}
    hardware = hardware_of(translated())
    point = MachineChoice(machines="1 x 4", gpu="a100-sxm4-80gb", gpus=4, makespan_s=100.0, cost_usd=0.4)
    renting = Renting((a_rental(), a_rental(hosts=(1,), usd=0.6)), (point,))
    cheapest = translated(hardware=None, market=market, objective={"kind": "min_cost", "deadline_s": 3600})
    found = parsed(issued(cheapest, a_plan(), hardware=hardware, renting=renting))
    assert found["objective"] == {"kind": "min_cost", "value": 1.0, "bound": None, "relative_gap": None}
    assert (found["cost_usd"], found["makespan_s"], found["status"]) == (1.0, 100.0, "feasible")
    assert found["rentals"][1].items() >= {"hosts": [1], "billed_s": 240.0, "usd": 0.6, "count": 1}.items()
    assert found["frontier"] == [point.model_dump()]
    soonest = issued(
        translated(hardware=None, market=market),
        a_plan(),
        hardware=hardware,
        renting=replace(renting, bound=209.0, start_up_s=120.0),
    )
    assert (soonest.objective.value, soonest.objective.bound, soonest.makespan_s) == (220.0, 209.0, 100.0)
    assert soonest.objective.relative_gap == pytest.approx(0.05)


def test_an_application_without_a_plan_carries_its_conflicts() -> None:
    translation = translated(hardware=None, market={"offers": a_snapshot()})
    conflict = OfflineConflict(constraint="memory/judge", needed=140.0, available=80.0, unit="gb")
    document = issue_infeasible(translation, [conflict], pile=a_pile(), plan_id=PLAN_ID, created_at=NOW)
    found = parsed(document)
    assert (found["status"], found["makespan_s"], found["strategy"]) == ("infeasible", None, None)
    assert found["objective"] == {"kind": "min_time", "value": None, "bound": None, "relative_gap": None}
    assert found["conflicts"] == [{"constraint": "memory/judge", "needed": 140.0, "available": 80.0, "unit": "gb"}]
    assert found["models"][0]["requests"] == 2
    with pytest.raises(DocumentError, match="the plan is infeasible and runs on nothing"):
        planned_hardware(document)


def test_application_hardware_and_schedule_come_back(tmp_path: Path) -> None:
    table = [{"model": "judge", "tensor_parallel": 2, "seconds": 60}]
    given = {"gpu": "a100-sxm4-80gb", "gpus": 4, "island_gpus": 2, "loading": {"table": table}}
    translation = translated(hardware=given)
    document = issued(translation, a_plan())
    (tmp_path / "plan.json").write_text(document_json(document))
    read = read_plan(tmp_path / "plan.json")
    assert read == document
    assert planned_application(read) == translation.application
    assert planned_hardware(read) == translation.hardware
    assert planned_schedule(read) == (FIRST, SECOND)


def test_a_plan_keeps_its_architectures_whatever_the_catalogue_says() -> None:
    document = issued(translated(), a_plan())
    thinner = document.models[0].architecture.model_copy(update={"layers": 39})
    models = (document.models[0].model_copy(update={"architecture": thinner}), document.models[1])
    changed = planned_application(document.model_copy(update={"models": models}))
    assert changed.nodes[0].spec.layers == 39


def test_a_wrong_plan_file_is_named(tmp_path: Path) -> None:
    found = parsed(issued(translated(), a_plan()))
    (tmp_path / "plan.json").write_text(json.dumps({**found, "seed": "x", "revision": 0}))
    with pytest.raises(DocumentError) as error:
        read_plan(tmp_path / "plan.json")
    assert {problem.field for problem in error.value.problems} == {"seed", "revision"}
    found["schedule"][0]["models"][0]["model"] = "nobody"
    (tmp_path / "plan.json").write_text(json.dumps(found))
    with pytest.raises(DocumentError, match=r"schedule\[0\].models\[0\].model: 'nobody': .*use summary, judge"):
        planned_schedule(read_plan(tmp_path / "plan.json"))
