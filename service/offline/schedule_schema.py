"""The schedule document of an offline application: what to start and to stop on which GPUs, step after step.

Written by `sutler offline run-plan` from a plan document (plan_schema.py). Units: seconds from the start of the
application. Keys are only ever added, never changed or taken away.
"""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.fields import Document


class ScheduledHost(Document):
    """A machine that models run on."""

    host: int
    """Its number in the plan."""
    machine: str | None
    """What is rented for it, in words; null for GPUs at hand."""
    islands: tuple[tuple[int, ...], ...]
    """Numbers of its GPUs, those with fast links between them together. A replica whose planned GPUs are taken may
    run on others of one island."""
    spans_islands: bool
    """Whether a replica may also run on several islands, all of their GPUs taken."""


class ScheduleModel(Document):
    """A model of the application."""

    model: str
    """The caller's name of the model, and the name that requests give."""
    file: str
    """The same as the name of a file: where its end and its progress are reported."""
    requests: int
    """How many it answers, as drawn for the plan."""


class ScheduleReplica(Document):
    """One server, whenever it runs."""

    id: str
    """Unique in the schedule; the same server after a pause or a move keeps it."""
    model: str
    """The caller's name of the model."""
    host: int
    """Number of the machine."""
    tensor_parallel: int
    """GPUs it takes."""
    port: int
    """Where it listens; no other replica of the host does, at any time."""
    command: tuple[str, ...]
    """Words of the command that starts it."""
    health_url: str
    """Answers 200 as soon as it serves, asked on its own machine."""
    health_limit_s: int
    """Seconds after which a start counts as failed."""


class ScheduledStart(Document):
    """A replica on its GPUs."""

    id: str
    """Which replica."""
    host: int
    """Number of the machine."""
    gpus: tuple[int, ...]
    """Numbers of its GPUs there, as nvidia-smi counts them."""
    environment: dict[str, str]
    """Environment variables to start it with."""
    expected_ready_s: float
    """When it serves, as planned."""


class RequestCount(Document):
    """So many finished requests of a model."""

    model: str
    """The caller's name of the model."""
    requests: int
    """How many, from the start of the application."""


class StepEnd(Document):
    """When a step ends. Always when one of the running models has finished, whichever it is."""

    expected: tuple[str, ...]
    """The models that finish then as planned; empty where none does."""
    until: RequestCount | None
    """It also ends when this model has finished so many requests."""


class ScheduleStep(Document):
    """What changes at one moment, and until when nothing else does."""

    start_s: float
    """When it begins, as planned."""
    end_s: float
    """When it ends, as planned."""
    stop: tuple[str, ...]
    """Replicas to stop first, by id."""
    keep: tuple[str, ...]
    """Replicas that go on where they are, by id."""
    start: tuple[ScheduledStart, ...]
    """Replicas to start on GPUs that are free by then. One in `stop` too moves to other GPUs."""
    running: tuple[ScheduledStart, ...]
    """All that run in this step: those to keep and those to start."""
    ends: StepEnd
    """When it ends."""


class OfflineScheduleDocument(Document):
    """A plan for an offline application as steps that a program can carry out.

    A step begins once the one before has ended and all of its replicas were up. What has finished needs no replica
    any more. Models that no later step runs go on until they finish, even where they have GPUs of the next step,
    whose replicas wait for those or take others (Fang et al., SamuLLM, 4.3).
    """

    schema_: Literal["sutler/offline-schedule/v1"] = Field(alias="schema")
    """Version of this format."""
    plan: Annotated[UUID, Field(strict=False)]
    """Identity of the plan."""
    revision: Annotated[int, Field(ge=1)]
    """Its revision."""
    application: str
    """What the caller calls the application."""
    engine: str
    """What the commands are for, with its version."""
    makespan_s: float
    """When all is done, as planned."""
    hosts: tuple[ScheduledHost, ...]
    """The machines."""
    models: tuple[ScheduleModel, ...]
    """The models, in the order of the application."""
    replicas: tuple[ScheduleReplica, ...]
    """Every server that some step runs."""
    steps: tuple[ScheduleStep, ...]
    """In order."""
    warnings: tuple[str, ...]
    """What to know before running it."""
