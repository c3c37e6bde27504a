"""Observed traffic as callers send it, and as it is told."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, Name, Timestamp, reject
from sutler.service.errors import FieldProblem
from sutler.service.web.resource import Resource

MOST_REQUESTS: Final = 50_000
MOST_BUCKETS: Final = 1_000
LONGEST_WINDOW_S: Final = 3600.0

SeenTokens = Annotated[float, Field(ge=0, le=1e7)]
SeenRequests = Annotated[float, Field(ge=0, le=1e9)]


class BucketDocument(Document):
    """Requests of a similar size."""

    input_tokens: SeenTokens
    """Mean tokens of a request's input."""
    output_tokens: SeenTokens
    """Mean tokens of a request's output."""
    requests: SeenRequests
    """How many there were."""


class RequestDocument(Document):
    """One request."""

    at: Timestamp
    """When it came."""
    input_tokens: SeenTokens
    """Tokens of its input."""
    output_tokens: SeenTokens
    """Tokens of its output."""


class ObservationDocument(Document):
    """Traffic of one model: counted in buckets over a window, or single requests."""

    model: Name
    """The model's name in the deployment's problem."""
    source: Annotated[str, Field(max_length=200)] = ""
    """Who counted, where several do (an engine, a gateway): their rates add up."""
    observed_at: Timestamp | None = None
    """With `buckets`: the end of the window."""
    window_s: Annotated[float, Field(gt=0, le=LONGEST_WINDOW_S)] | None = None
    """With `buckets`: its length, up to an hour."""
    buckets: Annotated[tuple[BucketDocument, ...], Field(strict=False, max_length=MOST_BUCKETS)] | None = None
    """What came in the window; empty: nothing did."""
    requests: Annotated[tuple[RequestDocument, ...], Field(strict=False, max_length=MOST_REQUESTS)] | None = None
    """Single requests, instead of buckets."""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        problems = list(_broken_form(self))
        if problems:
            reject(problems)
        return self


def _broken_form(document: ObservationDocument) -> Any:
    if (document.buckets is None) == (document.requests is None):
        both = None if document.buckets is None else "both"
        yield FieldProblem("buckets", both, "give either buckets with observed_at and window_s, or requests")
        return
    if document.requests is not None:
        for name in ("observed_at", "window_s"):
            if getattr(document, name) is not None:
                yield FieldProblem(name, None, "belongs to buckets: each request has its own `at`")
        if not document.requests:
            remedy = "is empty: to say that nothing came, send empty buckets with observed_at and window_s"
            yield FieldProblem("requests", None, remedy)
        return
    for name in ("observed_at", "window_s"):
        if getattr(document, name) is None:
            yield FieldProblem(name, None, "is needed with buckets")


class WorkloadTrafficResource(Resource):
    """What was seen of a workload, beside what is planned."""

    workload: str
    """Name of the workload."""
    planned_rps: float
    """Requests per second that the plan that holds was made for; without one, and of a model that sleeps, that the
    problem states."""
    rate_rps: float
    """Requests per second that were seen."""
    requests: float
    """Requests in the window."""
    input_tokens: float
    """Mean tokens of their input; of none, as stated."""
    output_tokens: float
    """Mean tokens of their output; of none, as stated."""


class ModelTrafficResource(Resource):
    """What is known of a model's traffic."""

    model: str
    """Its name."""
    state: Literal["never", "silent", "thin", "live"]
    """never: nothing was ever seen; silent: nothing is any more; thin: too little to tell; live: it is known."""
    window_s: float
    """Seconds that it was judged by."""
    requests: float
    """Requests in the window."""
    rate_rps: float
    """Requests per second."""
    planned_rps: float
    """Requests per second that the plan that holds was made for; without one, that the problem states."""
    last_at: datetime | None
    """Until when it is known."""
    workloads: list[WorkloadTrafficResource]
    """By workload."""
    latencies: dict[str, float] = Field(
        default={}, description="Of the newest reading of a feed, in seconds; and shares that kept limits."
    )


class AcceptedResource(Resource):
    """What became of an observation."""

    model: str
    """The model."""
    accepted_requests: float
    """Requests that were counted; 0 for what was sent before."""
    duplicate: bool
    """Whether the same was sent before by the same source."""
    traffic: ModelTrafficResource
    """What is known of the model's traffic now."""


class TrafficResource(Resource):
    """What is known of a deployment's traffic."""

    deployment: str
    """Its name."""
    models: list[ModelTrafficResource]
    """By model."""
