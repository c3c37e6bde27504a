"""How documents and records of the solver become each other by the names of their fields."""

import math

from sutler.service.documents.model import ModelSpecDocument
from sutler.service.documents.plan import PlanDocument, ReplicaDocument, RobustnessDocument
from sutler.service.translation.mapping import mapped
from sutler.solver.catalog import load_models
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.plan import Plan, Replica, Robustness, Stage, WorkloadRate

# What a document states otherwise than the record of its name.
STATED_OTHERWISE = {"schema_", "id", "revision", "created_at", "models", "gpus", "market", "notes"}
STATED_OTHERWISE |= {"calibration", "resilience", "validation", "availability", "sleeping"}
IN_THE_OBJECTIVE = {"value", "bound", "relative_gap", "optimum_value"}


def a_replica() -> Replica:
    stage = Stage("h100-sxm", 1, 32, 0, 0, (0,))
    rates = (WorkloadRate("chat", 2.0), WorkloadRate("code", 1.0))
    return Replica("r0", "m", "aggregated", (stage,), 8, 0.5, rates, (("model", "x"), ("max_num_seqs", 8)))


def test_a_plan_has_the_same_fields_on_both_sides_but_for_what_the_service_adds() -> None:
    assert set(PlanDocument.model_fields) - STATED_OTHERWISE == set(Plan.__slots__) - IN_THE_OBJECTIVE


def test_tuples_of_pairs_become_mappings_and_come_back() -> None:
    document = mapped(ReplicaDocument, a_replica())
    assert document.throughput_rps == {"chat": 2.0, "code": 1.0}
    assert document.engine_args == {"model": "x", "max_num_seqs": 8}
    assert document.stages[0].gpu_indices == (0,)
    assert mapped(Replica, document) == a_replica()


def test_records_within_records_come_back() -> None:
    for spec in load_models().values():
        document = mapped(ModelSpecDocument, spec)
        assert mapped(ModelSpec, document, id=spec.id, precisions=spec.precisions) == spec


def test_what_is_stated_wins() -> None:
    assert mapped(ReplicaDocument, a_replica(), id="r7", max_batch=None).id == "r7"


def test_no_number_that_json_lacks_reaches_a_document() -> None:
    found = mapped(RobustnessDocument, Robustness(1.0, 2.0, math.inf, "unknown", None, math.nan))
    assert (found.low_fraction, found.load_multiple_at_low, found.bound_at_low) == (1.0, None, None)
