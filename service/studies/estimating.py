"""`/v1/estimates` and `/v1/catalog`: what takes milliseconds, answered at once, in threads beside the event loop."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from sutler.service.auth.dependency import Reader, Service
from sutler.service.documents.estimate import EstimateDocument, EstimateQuestion
from sutler.service.documents.fields import PRINTABLE
from sutler.service.profiles.service import ProfilesService
from sutler.service.translation.calibrations import calibration_of
from sutler.service.translation.catalogue import Edition, gpu_entries, model_entries
from sutler.service.translation.estimates import configuration, estimate_document
from sutler.service.web.bodies import body_docs, body_of
from sutler.service.web.paging import Page
from sutler.service.web.problems import responses

router = APIRouter(prefix="/v1", tags=["catalogue"])

EXAMPLE = {
    "model": "llama-3.1-70b",
    "gpu": "h200-sxm",
    "tensor_parallel": 4,
    "precision": "fp8",
    "input_tokens": 1024,
    "output_tokens": 512,
    "concurrency": 64,
}
DEGREES = {"tensor_parallel": "tp", "pipeline_parallel": "pp", "data_parallel": "dp"}
Name = Annotated[
    str | None,
    Query(min_length=1, max_length=200, pattern=PRINTABLE, description="Only this entry; usual spellings work."),
]


@router.post(
    "/estimates",
    responses=responses(401, 403, 404, 408, 413, 415, 422, 429, 503),
    openapi_extra=body_docs(EstimateQuestion, one_replica=EXAMPLE),
)
def estimate(
    services: Service, _reader: Reader, question: Annotated[EstimateQuestion, body_of(EstimateQuestion)]
) -> EstimateDocument:
    """Say what one configuration should do: requests/s, time to first token and per token, with their error band."""
    given = question.calibration
    document = services.part(ProfilesService).calibration(given) if isinstance(given, str) else given
    own = None if document is None else calibration_of(document, field="calibration")
    asked: dict[str, Any] = question.model_dump(exclude_none=True, exclude={"calibration"})
    texts = {DEGREES.get(name, name): str(value) for name, value in asked.items()}
    return estimate_document(configuration(texts), own)


@router.get("/catalog/gpus", responses=responses(401, 403, 422, 429, 503))
def list_gpus(
    _services: Service,
    _reader: Reader,
    name: Name = None,
    catalog: Annotated[Edition, Query(description="Which GPU table.")] = "default",
) -> Page[dict[str, Any]]:
    """The GPUs that a problem can name, with the source of every figure."""
    return Page(items=gpu_entries(name, catalog), next=None)


@router.get("/catalog/models", responses=responses(401, 403, 422, 429, 503))
def list_models(_services: Service, _reader: Reader, name: Name = None) -> Page[dict[str, Any]]:
    """The models that a problem can name, with the source of every figure."""
    return Page(items=model_entries(name), next=None)
