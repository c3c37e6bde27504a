"""The JSON Schemas of the documents that callers exchange with sutler: problem, market snapshot, plan and more."""

from typing import Any, Final, Literal

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.estimate import EstimateDocument
from sutler.service.documents.fields import Document
from sutler.service.documents.kinds import DocumentName
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.outcome_schema import OfflineComparisonDocument, OfflineSimulationDocument
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.schedule_schema import OfflineScheduleDocument

READ: Final[dict[DocumentName, type[Document]]] = {
    "problem": ProblemDocument,
    "market": MarketDocument,
    "calibration": CalibrationDocument,
    "application": ApplicationDocument,
    "offline-progress": ProgressDocument,
}
WRITTEN: Final[dict[DocumentName, type[Document]]] = {
    "plan": PlanDocument,
    "comparison": ComparisonDocument,
    "what-if": WhatIfDocument,
    "estimate": EstimateDocument,
    "offline-plan": OfflinePlanDocument,
    "offline-simulation": OfflineSimulationDocument,
    "offline-comparison": OfflineComparisonDocument,
    "offline-schedule": OfflineScheduleDocument,
}
DOCUMENTS: Final = READ | WRITTEN


def json_schema(name: DocumentName) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document, with the meaning and unit of every field."""
    mode: Literal["validation", "serialization"] = "serialization" if name in WRITTEN else "validation"
    schema = DOCUMENTS[name].model_json_schema(mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"sutler/{name}/v1", **schema}
