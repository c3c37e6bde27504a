"""The documents that callers exchange with sutler: problem, market snapshot, plan and more, and their JSON Schemas.

Shared by the command line and the API. to_problem.py turns them into the solver's own types and back.
"""

from typing import Any, Final, Literal

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.fields import Document
from sutler.service.documents.market import MarketDocument, OfferDocument
from sutler.service.documents.model import GpuDocument, ModelSpecDocument
from sutler.service.documents.plan import PlanDocument, RentalDocument, ReplicaDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import ModelDocument, WorkloadDocument
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.outcome_schema import OfflineComparisonDocument, OfflineSimulationDocument
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.schedule_schema import OfflineScheduleDocument

DocumentName = Literal[
    "problem",
    "market",
    "plan",
    "calibration",
    "comparison",
    "application",
    "offline-plan",
    "offline-progress",
    "offline-simulation",
    "offline-comparison",
    "offline-schedule",
]
_WRITTEN_ONLY: Final[tuple[DocumentName, ...]] = (
    "plan",
    "comparison",
    "offline-plan",
    "offline-simulation",
    "offline-comparison",
    "offline-schedule",
)
DOCUMENTS: Final[dict[DocumentName, type[Document]]] = {
    "problem": ProblemDocument,
    "market": MarketDocument,
    "plan": PlanDocument,
    "calibration": CalibrationDocument,
    "comparison": ComparisonDocument,
    "application": ApplicationDocument,
    "offline-plan": OfflinePlanDocument,
    "offline-progress": ProgressDocument,
    "offline-simulation": OfflineSimulationDocument,
    "offline-comparison": OfflineComparisonDocument,
    "offline-schedule": OfflineScheduleDocument,
}


def json_schema(name: DocumentName) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document, with the meaning and unit of every field."""
    mode: Literal["validation", "serialization"] = "serialization" if name in _WRITTEN_ONLY else "validation"
    schema = DOCUMENTS[name].model_json_schema(mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"sutler/{name}/v1", **schema}


__all__ = [
    "DOCUMENTS",
    "DocumentName",
    "GpuDocument",
    "MarketDocument",
    "ModelDocument",
    "ModelSpecDocument",
    "OfferDocument",
    "PlanDocument",
    "ProblemDocument",
    "RentalDocument",
    "ReplicaDocument",
    "WorkloadDocument",
    "json_schema",
]
