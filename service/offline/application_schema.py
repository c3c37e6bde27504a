"""The application document: models, their requests, whose output is whose input, what it runs on, what is best.

Rules that one field can break alone are in its type; those that fields break together are in application_rules.py.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from service.offline.application_rules import broken_rules
from service.offline.hardware_schema import (
    HardwareDocument,
    OfflineMinTime,
    OfflineObjective,
    RentalLimits,
    RentalTerms,
)
from service.offline.lengths_schema import LengthsDocument
from service.offline.requests_schema import RequestsDocument, RequestTokens
from service.plans.fields import Document, GpuName, Name, PositiveFraction, PositiveGigabytes, reject
from service.plans.model_schema import GpuDocument, PrecisionName
from service.plans.problem_schema import MarketSourceDocument, ModelReference, ParallelSize


class NodeDocument(Document):
    """A model of the application, with the requests that are its own."""

    name: Name
    """The caller's own name for it, unique in the application."""
    model: ModelReference
    """Id in the catalogue (`sutler catalog models`), its config.json, or its architecture."""
    precision: PrecisionName = "bf16"
    """Of the weights."""
    kv_precision: PrecisionName | None = None
    """Of the KV cache; unset: 16 bits, as serving engines do unless told otherwise."""
    requests: RequestsDocument | None = None
    """Its own requests; unset: all come from other models."""
    prompt_tokens: LengthsDocument = 0
    """Lengths of what is put around an output of another model that it reads."""
    output_tokens: LengthsDocument | None = None
    """Lengths of its answers; may be left out where its requests are recorded with theirs."""
    max_output_tokens: RequestTokens | None = None
    """Where its answers are cut off; unset: where the context ends."""
    weights_gb: PositiveGigabytes | None = None
    """10^9 bytes of weights to download and to load; unset: by the precision."""


class EdgeDocument(Document):
    """One model reads what another has written, or what it has written itself."""

    source: Name = Field(alias="from")
    """`name` of the model that writes."""
    target: Name = Field(alias="to")
    """`name` of the model that reads. The same as `from`: each chunk of a chain waits for the one before it and reads
    its output."""
    outputs: Literal["last", "every"] = "last"
    """Of a chain, hand on the last output alone or every one."""
    fan_in: Literal["separate", "concatenate"] = "separate"
    """Each output is a request by itself, or one request reads one output of every such source, behind the model's
    own prompt where it has requests."""
    copies: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Requests per output: 4 for a summary that is judged four times."""
    share_fraction: PositiveFraction = 1.0
    """How many of the outputs are handed on, drawn at random."""


class OfflineSearch(Document):
    """Which schedules are considered."""

    tensor_parallel: Annotated[tuple[ParallelSize, ...], Field(strict=False, min_length=1)] = (1, 2, 4, 8)
    """Tensor-parallel sizes of a replica."""
    preemption: bool = True
    """Whether a model may stop before it is done, or change its replicas."""
    keep_replicas: bool = True
    """Whether a model that changes only its number of replicas keeps those that run; false: it loads all anew."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Of the lengths that are drawn."""
    time_limit_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """Seconds after which the best schedule so far is returned."""
    max_sequences: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Requests at once in a replica (vLLM's max_num_seqs)."""


class ApplicationDocument(Document):
    """An offline application of several models, and what it may run on."""

    name: Name
    """What the caller calls it."""
    models: Annotated[tuple[NodeDocument, ...], Field(strict=False, min_length=1, max_length=1000)]
    """The models."""
    edges: Annotated[tuple[EdgeDocument, ...], Field(strict=False, max_length=10_000)] = ()
    """Whose output is whose input."""
    hardware: HardwareDocument | None = None
    """The GPUs at hand; or `market`."""
    market: MarketSourceDocument | None = None
    """What is for rent; or `hardware`."""
    objective: OfflineObjective = OfflineMinTime(kind="min_time")
    """What is best."""
    rental: RentalTerms = RentalTerms()
    """Terms of renting; counts only with a market."""
    limits: RentalLimits = RentalLimits()
    """How much may be rented; counts only with a market."""
    search: OfflineSearch = OfflineSearch()
    """Which schedules are considered."""
    gpus: dict[GpuName, GpuDocument] = Field(default={})
    """GPUs of the caller's own, by name; they replace those of the catalogue."""
    catalog: Literal["default", "paper_table1"] = "default"
    """Which catalogue of GPUs."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        reject(broken_rules(self))
        return self
