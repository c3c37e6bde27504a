"""The application document: models, their requests, whose output is whose input, what it runs on, what is best.

A rule that one field can break alone is in its type; what fields break together is found here. Loops of several
models and models that nothing reaches are refused by solver/offline/application.py; what needs the catalogue or the
drawn lengths, such as context windows, by translate.py and counts.py.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, GpuName, Name, PositiveFraction, PositiveGigabytes, reject
from sutler.service.documents.model import GpuDocument, PrecisionName
from sutler.service.documents.problem_parts import MarketSourceDocument, ModelReference, ParallelSize
from sutler.service.documents.rules import either, repeated
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.offline.hardware_schema import (
    HardwareDocument,
    LoadingDocument,
    OfflineMinTime,
    OfflineObjective,
    RentalLimits,
    RentalTerms,
)
from sutler.service.offline.lengths_schema import LengthsDocument
from sutler.service.offline.requests_schema import (
    DrawnRequests,
    RecordedRequests,
    RequestsDocument,
    RequestTokens,
    TraceRequests,
)

ONLY_RENTED = "counts only with a market: leave it out"


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
        reject(_broken_rules(self))
        return self


def _broken_rules(application: ApplicationDocument) -> list[FieldProblem]:
    """Every broken rule, in the order of the document."""
    return [
        *repeated("models", [model.name for model in application.models]),
        *(found for i, model in enumerate(application.models) for found in _model_rules(i, model, application)),
        *_edge_rules(application),
        *_hardware_rules(application),
        *_rental_rules(application),
        *_search_rules(application),
    ]


def _model_rules(i: int, model: NodeDocument, application: ApplicationDocument) -> Iterator[FieldProblem]:
    at, requests = f"models[{i}]", model.requests
    has_answers = isinstance(requests, TraceRequests) or (
        isinstance(requests, RecordedRequests) and requests.recorded.output_tokens is not None
    )
    if model.output_tokens is None and not has_answers:
        remedy = "is missing: say how long its answers are; only requests recorded with theirs can do without"
        yield FieldProblem(f"{at}.output_tokens", None, remedy)
    yield from _recorded_rules(at, requests)
    yield from _chain_rules(at, model, application)
    if model.prompt_tokens != 0 and not any(_hands_to(edge, model.name) for edge in application.edges):
        remedy = "stands around outputs of other models, and no edge brings it any: count it in its own prompts"
        yield FieldProblem(f"{at}.prompt_tokens", short_repr(model.prompt_tokens), remedy)


def _recorded_rules(at: str, requests: object) -> Iterator[FieldProblem]:
    if not isinstance(requests, RecordedRequests) or requests.recorded.output_tokens is None:
        return
    prompts, answers = len(requests.recorded.input_tokens), len(requests.recorded.output_tokens)
    if prompts != answers:
        remedy = f"has {answers} entries where input_tokens has {prompts}: give one for each"
        shown = short_repr(list(requests.recorded.output_tokens))
        yield FieldProblem(f"{at}.requests.recorded.output_tokens", shown, remedy)


def _chain_rules(at: str, model: NodeDocument, application: ApplicationDocument) -> Iterator[FieldProblem]:
    requests = model.requests
    loop = next((i for i, edge in enumerate(application.edges) if edge.source == edge.target == model.name), None)
    length = requests.chain_length if isinstance(requests, DrawnRequests) else None
    if loop is None:
        if length is not None:
            remedy = f"makes chains: add an edge from {model.name} to itself, or leave it out"
            yield FieldProblem(f"{at}.requests.chain_length", short_repr(length), remedy)
    elif requests is None:
        remedy = f"is missing: edges[{loop}] makes chains, of requests of its own with a chain_length"
        yield FieldProblem(f"{at}.requests", None, remedy)
    elif not isinstance(requests, DrawnRequests):
        remedy = (
            f"recorded requests have no chains, which edges[{loop}] makes: give count, input_tokens, chain_length"
        )
        yield FieldProblem(f"{at}.requests", None, remedy)
    elif length is None:
        remedy = f"is missing: edges[{loop}] makes chains; say how many chunks an item has"
        yield FieldProblem(f"{at}.requests.chain_length", None, remedy)


def _hands_to(edge: EdgeDocument, name: str) -> bool:
    return edge.target == name != edge.source


def _edge_rules(application: ApplicationDocument) -> Iterator[FieldProblem]:
    names = [model.name for model in application.models]
    first: dict[tuple[str, str], int] = {}
    for i, edge in enumerate(application.edges):
        for end, name in (("from", edge.source), ("to", edge.target)):
            if name not in names:
                remedy = f"is no model of this application: use {either(names)}"
                yield FieldProblem(f"edges[{i}].{end}", short_repr(name), remedy)
        earlier = first.setdefault((edge.source, edge.target), i)
        if earlier != i:
            remedy = f"edges[{earlier}] has the same ends: keep one of the two"
            yield FieldProblem(f"edges[{i}]", short_repr(f"{edge.source} -> {edge.target}"), remedy)
        if edge.source == edge.target:
            yield from _loop_rules(f"edges[{i}]", edge)


def _loop_rules(at: str, edge: EdgeDocument) -> Iterator[FieldProblem]:
    for field, usual in (("outputs", "last"), ("copies", 1), ("share_fraction", 1.0)):
        given = getattr(edge, field)
        if given != usual:
            remedy = "a chunk reads the output of the one before it, once: leave it out"
            yield FieldProblem(f"{at}.{field}", short_repr(given), remedy)


def _hardware_rules(application: ApplicationDocument) -> Iterator[FieldProblem]:
    hardware = application.hardware
    if hardware is None and application.market is None:
        yield FieldProblem("hardware", None, "is missing: describe the GPUs at hand, or give a market")
    if hardware is not None and application.market is not None:
        yield FieldProblem("market", None, "stands beside hardware: keep one of the two")
    if hardware is not None:
        yield from _loading_rules("hardware.loading.table", hardware.loading, application)
    yield from _loading_rules("rental.loading.table", application.rental.loading, application)


def _loading_rules(at: str, loading: LoadingDocument, application: ApplicationDocument) -> Iterator[FieldProblem]:
    names = [model.name for model in application.models]
    first: dict[tuple[str, int], int] = {}
    for i, row in enumerate(loading.table):
        if row.model not in names:
            remedy = f"is no model of this application: use {either(names)}"
            yield FieldProblem(f"{at}[{i}].model", short_repr(row.model), remedy)
        earlier = first.setdefault((row.model, row.tensor_parallel), i)
        if earlier != i:
            remedy = f"{at}[{earlier}] has the same model and tensor_parallel: keep one of the two"
            yield FieldProblem(f"{at}[{i}]", short_repr(row.model), remedy)


def _rental_rules(application: ApplicationDocument) -> Iterator[FieldProblem]:
    if application.market is not None:
        return
    objective = application.objective
    if objective.kind == "min_cost":
        yield FieldProblem("objective.kind", "'min_cost'", "needs a market: GPUs at hand cost nothing; use min_time")
    for field in ("budget_usd", "budget_usd_per_hour"):
        given = getattr(objective, field, None)
        if given is not None:
            yield FieldProblem(f"objective.{field}", f"{given:g}", ONLY_RENTED)
    if application.rental != RentalTerms():
        yield FieldProblem("rental", None, ONLY_RENTED)
    if application.limits != RentalLimits():
        yield FieldProblem("limits", None, ONLY_RENTED)


def _search_rules(application: ApplicationDocument) -> Iterator[FieldProblem]:
    sizes = application.search.tensor_parallel
    if len(set(sizes)) < len(sizes):
        yield FieldProblem("search.tensor_parallel", short_repr(list(sizes)), "names a size twice")
