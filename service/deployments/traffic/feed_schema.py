"""Feeds as callers give them, and as they are told: where a deployment's traffic is read from."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, model_validator

from sutler.service.documents.fields import PRINTABLE, Document, Name, reject
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.outgoing.destinations import LONGEST_URL
from sutler.service.web.resource import Resource

MOST_FEEDS: Final = 20
MOST_URLS: Final = 64
MOST_LABELS: Final = 10
LABEL: Final = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
SHORTEST_S: Final = 5.0
LONGEST_S: Final = 600.0
METRICS_PATH: Final = "/metrics"

Url = Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]
LabelName = Annotated[str, Field(max_length=60)]
LabelValue = Annotated[str, Field(max_length=100)]
ReplicaId = Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)]
FeedKind = Literal["vllm", "sglang", "prometheus"]


class FeedDocument(Document):
    """Where the traffic of one model is read from."""

    model: Name
    """The model's name in the deployment's problem."""
    kind: FeedKind
    """vllm, sglang: the engines' own metrics; prometheus: what a Prometheus server has gathered of vLLM's."""
    urls: Annotated[tuple[Url, ...], Field(strict=False, min_length=1, max_length=MOST_URLS)] | None = None
    """With vllm and sglang: one URL for each engine; `/metrics` is added where there is no path."""
    url: Url | None = None
    """With prometheus: the server's root."""
    selector: Annotated[dict[LabelName, LabelValue], Field(max_length=MOST_LABELS)] | None = None
    """With prometheus: labels that the engines' series have; unset: all of them."""
    every_s: Annotated[float, Field(ge=SHORTEST_S, le=LONGEST_S)] = 15.0
    """Seconds between two readings."""
    replica: ReplicaId | None = None
    """With vllm and sglang: a replica of the plan whose layout these engines have, so that rates are learnt of them;
    unset: where all of the model's are alike."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The URLs that are read, as they are read."""
        if self.kind == "prometheus":
            return (self.url or "",)
        return tuple(dict.fromkeys(_with_path(url) for url in self.urls or ()))

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        reject(list(_misplaced(self)))
        return self


def _misplaced(feed: FeedDocument) -> Iterator[FieldProblem]:
    is_engine = feed.kind != "prometheus"
    needed, others = ("urls", ("url", "selector")) if is_engine else ("url", ("urls", "replica"))
    if getattr(feed, needed) is None:
        yield FieldProblem(needed, None, f"is needed with kind {feed.kind}")
    for name in others:
        if getattr(feed, name) is not None:
            yield FieldProblem(name, None, f"does not belong to kind {feed.kind}: remove it")
    for label in feed.selector or ():
        if not LABEL.fullmatch(label):
            remedy = "is no label of Prometheus: letters, digits and _, not beginning with a digit"
            yield FieldProblem("selector", short_repr(label), remedy)


def _with_path(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(path=METRICS_PATH)) if parts.path in ("", "/") else url


class FeedsDocument(Document):
    """All feeds of a deployment: what is not listed is read no more."""

    feeds: Annotated[tuple[FeedDocument, ...], Field(strict=False, max_length=MOST_FEEDS)]
    """The feeds; none: an empty list."""


class FailedUrlResource(Resource):
    """An engine that could not be read."""

    url: str
    """Its URL."""
    error: str
    """Why."""


class FeedResource(Resource):
    """A feed, and how its last reading went."""

    model: str
    """The model."""
    kind: FeedKind
    """What is read."""
    urls: list[str]
    """Where."""
    selector: dict[str, str]
    """Labels of the series, of a Prometheus."""
    every_s: float
    """Seconds between two readings."""
    replica: str | None = None
    """A replica of the plan whose layout the engines have; null: where all of the model's are alike."""
    read_at: datetime | None
    """When anything was read last."""
    next_at: datetime | None
    """When it will be read next; null: at once."""
    error: str | None
    """Why nothing could be read the last time; null: something was, or nothing was tried yet."""
    failures: int
    """Times in a row that nothing could be read; each doubles the wait, up to five minutes."""
    partial: list[FailedUrlResource]
    """Engines that could not be read while others could."""


class FeedsResource(Resource):
    """All feeds of a deployment."""

    deployment: str
    """Its name."""
    feeds: list[FeedResource]
    """The feeds."""
