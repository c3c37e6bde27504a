"""The progress document: how far an application is while it runs, from which `adjust` plans the rest anew."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, Name, reject
from sutler.service.documents.rules import repeats
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.offline.hardware_schema import MOST_GPUS, CardNumber, SecondsOrZero
from sutler.service.offline.lengths_schema import MOST_ENTRIES

Number = Annotated[int, Field(ge=0, le=MOST_GPUS - 1)]
Done = Annotated[int, Field(ge=0, le=1000 * MOST_ENTRIES)]


class ModelProgress(Document):
    """How far one model is."""

    model: Name
    """`name` of the model."""
    finished_requests: Done
    """Requests that it has finished since the start of the application; of a chain, each chunk is one."""


class RunningGpu(Document):
    """One GPU."""

    host: Number
    """Number of its machine in the plan."""
    gpu: CardNumber
    """Its number there."""


class ReplicaProgress(Document):
    """One replica that is up, or loads."""

    model: Name
    """`name` of the model."""
    number: Number
    """Its number among those of its model, from 0."""
    gpus: Annotated[tuple[RunningGpu, ...], Field(strict=False, min_length=1, max_length=MOST_GPUS)]
    """Where it runs."""
    ready_s: SecondsOrZero = 0.0
    """From when on it serves, in seconds from the start of the application."""


class ProgressDocument(Document):
    """What is known of a running application at one moment."""

    at_s: Annotated[float, Field(gt=0, le=1e7)]
    """Seconds since the start of the application."""
    models: Annotated[tuple[ModelProgress, ...], Field(strict=False, min_length=1, max_length=1000)]
    """How far its models are; one that is left out is as far as the plan has it by then."""
    replicas: Annotated[tuple[ReplicaProgress, ...], Field(strict=False, max_length=MOST_GPUS)] | None = None
    """All that are up; unset: those that the plan has by then."""

    @model_validator(mode="after")
    def _check_once(self) -> Self:
        reject([*_named_twice(self), *_gpus_twice(self)])
        return self


def _named_twice(progress: ProgressDocument) -> list[FieldProblem]:
    names = [model.model for model in progress.models]
    remedy = "stands there twice: keep one"
    return [FieldProblem(f"models[{i}].model", short_repr(names[i]), remedy) for i, _ in repeats(names)]


def _gpus_twice(progress: ProgressDocument) -> list[FieldProblem]:
    places = [(i, gpu.host, gpu.gpu) for i, replica in enumerate(progress.replicas or ()) for gpu in replica.gpus]
    problems = []
    for at, _ in repeats(place[1:] for place in places):
        i, host, gpu = places[at]
        shown = f"host {host}, GPU {gpu}"
        problems.append(FieldProblem(f"replicas[{i}].gpus", shown, "runs another replica: one per GPU"))
    return problems
