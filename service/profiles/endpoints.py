"""`/v1/profiles`, `/v1/calibrations`: what was measured, and what problems can name. Made on the command line.

These endpoints run in threads, beside the event loop.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path

from sutler.service.auth.dependency import Reader, Service
from sutler.service.documents.calibration import CalibrationDocument, CalibrationErrors
from sutler.service.documents.fields import PRINTABLE
from sutler.service.profiles.repository import Profile
from sutler.service.profiles.service import ProfilesService
from sutler.service.web.paging import Page
from sutler.service.web.problems import responses
from sutler.service.web.resource import Resource

router = APIRouter(prefix="/v1", tags=["profiles"])

CalibrationName = Annotated[str, Path(min_length=1, max_length=200, pattern=PRINTABLE)]


class ProfileResource(Resource):
    """Benchmark runs of one GPU, model, precision, engine and version."""

    id: str
    """Names it on the command line."""
    gpu: str
    """Slug of the GPU."""
    model: str
    """Id in the catalogue."""
    precision: str
    """Of the weights."""
    kv_precision: str
    """Of the KV cache."""
    engine: str
    """The serving engine."""
    engine_version: str
    """Its version; empty where it is not known."""
    runs: int
    """How many."""
    tensor_parallel: tuple[int, ...]
    """Degrees among them."""
    least_concurrency: float
    """Requests in flight, the least."""
    most_concurrency: float
    """Requests in flight, the most."""
    newest_at: datetime
    """When the last of them was imported."""


class CalibrationSummary(Resource):
    """A calibration without its runs."""

    name: str
    """What problems call it (`throughput.calibration`)."""
    revision: int
    """The newest, which they get."""
    created_at: datetime
    """When it was fitted."""
    engine: str
    """The serving engine."""
    engine_versions: tuple[str, ...]
    """Versions among the runs."""
    runs: int
    """Benchmark runs that it was fitted to."""
    left_out: CalibrationErrors | None
    """What to expect of runs that were not seen."""
    url: str
    """Where all of it is."""


@router.get("/profiles", responses=responses(401, 403, 429, 503))
def list_profiles(services: Service, _reader: Reader) -> Page[ProfileResource]:
    """What was imported, by GPU, model, precision, engine and version."""
    found = services.part(ProfilesService).profiles()
    return Page(items=[_resource(one) for one in found], next=None)


@router.get("/calibrations", responses=responses(401, 403, 429, 503))
def list_calibrations(services: Service, _reader: Reader) -> Page[CalibrationSummary]:
    """The newest revision of every name."""
    found = services.part(ProfilesService).calibrations()
    return Page(items=[_summary(one) for one in found], next=None)


@router.get("/calibrations/{name}", responses=responses(401, 403, 404, 422, 429, 503))
def get_calibration(name: CalibrationName, services: Service, _reader: Reader) -> CalibrationDocument:
    """All of the newest revision: a problem can carry it instead of the name."""
    return services.part(ProfilesService).calibration(name)


def _resource(one: Profile) -> ProfileResource:
    key, figures = asdict(one.key), asdict(one)
    del figures["key"], figures["imported_from"]
    return ProfileResource(id=one.key.id, **key, **figures)


def _summary(one: CalibrationDocument) -> CalibrationSummary:
    shared = {name: getattr(one, name) for name in CalibrationSummary.model_fields if name != "url"}
    return CalibrationSummary(**shared, url=f"/v1/calibrations/{one.name}")
