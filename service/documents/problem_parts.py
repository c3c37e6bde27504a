"""What a problem document is made of: objectives, models with their traffic, markets, limits, search, measured rates.

A rule that one field can break alone is in its type; problem.py has those that fields break together.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from sutler.service.documents.calibration import CalibrationDocument, CalibrationFile
from sutler.service.documents.fields import (
    Count,
    Document,
    FilePath,
    Fraction,
    GpuName,
    Name,
    PositiveFraction,
    PositiveRate,
    Rate,
    Requests,
    Seconds,
    Tokens,
    Watts,
    reject,
)
from sutler.service.documents.fitness import FitChoice
from sutler.service.documents.market import ContractName, MarketDocument
from sutler.service.documents.model import ConfigDocument, ModelSpecDocument, PrecisionName
from sutler.service.documents.stated import InterruptionsDocument, NetworkDocument, StockDocument, stated_rules


def _no_boolean(value: Any) -> Any:
    """Refuses true, which Python takes for 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("sutler_choice", "must be 1, 2, 4 or 8")
    return value


ParallelSize = Annotated[Literal[1, 2, 4, 8], BeforeValidator(_no_boolean)]


def _off(value: Any) -> Any:
    """Takes false for `off`: so YAML reads the bare word."""
    return "off" if value is False else value


LossName = Literal["provider", "place", "machine", "interruptible"]
DisaggregationChoice = Annotated[Literal["off", "auto", "only"], BeforeValidator(_off)]


class _Objective(Document):
    """What all objectives have in common."""

    give_up_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of the optimum, how much may be given up for the most load at the low end of the rates' error bands. The plan's
    value is then that of what it rents, and `objective.optimum_value` says what was given up. Not with `robust`."""
    robust: bool = False
    """Count on the low end of every rate's error band: the plan, its value and its bound are at those."""
    count_interruptions: bool = False
    """Machines count at what they cost on average: the price, and that of the machines which start in the place of
    those that are taken away. `budget_usd_per_hour` then holds for that, too."""
    restart_s: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """For how many seconds a machine in the place of another is paid before it serves; unset: 90, and the download of
    the largest weights at 0.25 GB/s. A deployment's policy says so itself."""


class MaxThroughput(_Objective):
    """Serve as many requests/s at the given mix as the budget allows."""

    kind: Literal["max_throughput"]
    """Which objective."""


class MinMakespan(_Objective):
    """Finish the given requests as early as the budget allows."""

    kind: Literal["min_makespan"]
    """Which objective."""


class MinCost(_Objective):
    """Carry the given load for the least USD per hour."""

    kind: Literal["min_cost"]
    """Which objective."""
    headroom_fraction: Fraction = 0.0
    """The fleet carries (1 + headroom) times the given load."""


class MinPower(_Objective):
    """Carry the given load with the least power: the TDP of all rented GPUs, or what they are capped to."""

    kind: Literal["min_power"]
    """Which objective."""
    headroom_fraction: Fraction = 0.0
    """The fleet carries (1 + headroom) times the given load."""


ObjectiveDocument = Annotated[MaxThroughput | MinMakespan | MinCost | MinPower, Discriminator("kind")]


class SloDocument(Document):
    """Latency limits in seconds: time to first token, time per output token after the first, whole request."""

    ttft_p50_s: Seconds | None = None
    """Half of the requests see their first token within this time."""
    ttft_p90_s: Seconds | None = None
    """90 % of the requests see their first token within this time."""
    ttft_p95_s: Seconds | None = None
    """95 % of the requests see their first token within this time."""
    ttft_p99_s: Seconds | None = None
    """99 % of the requests see their first token within this time."""
    tpot_p50_s: Seconds | None = None
    """Half of the requests take at most this time per output token after the first."""
    tpot_p90_s: Seconds | None = None
    """90 % of the requests take at most this time per output token after the first."""
    tpot_p95_s: Seconds | None = None
    """95 % of the requests take at most this time per output token after the first."""
    tpot_p99_s: Seconds | None = None
    """99 % of the requests take at most this time per output token after the first."""
    e2e_p50_s: Seconds | None = None
    """Half of the requests are finished within this time."""
    e2e_p90_s: Seconds | None = None
    """90 % of the requests are finished within this time."""
    e2e_p95_s: Seconds | None = None
    """95 % of the requests are finished within this time."""
    e2e_p99_s: Seconds | None = None
    """99 % of the requests are finished within this time."""


class WorkloadDocument(Document):
    """One bucket of similar requests."""

    name: Name
    """Name of the bucket, unique in its model."""
    input_tokens: Tokens
    """Mean tokens of a request's input."""
    output_tokens: Tokens
    """Mean tokens of a request's output."""
    rate_rps: PositiveRate | None = None
    """Requests per second; for max_throughput only the mix counts. Not with min_makespan."""
    requests: Requests | None = None
    """Number of requests; with min_makespan only."""
    slo: SloDocument | None = None
    """Latency limits of its own. Those of a metric (ttft, tpot, e2e) replace all that the model has of it; null for
    one of its percentiles lifts them. Metrics that it leaves out: as the model has them."""
    prefix_cache_hit_fraction: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of its input tokens whose KV cache is already there; unset: as the model has it."""


class TraceDocument(Document):
    """Workloads from a CSV of requests with columns TIMESTAMP, ContextTokens, GeneratedTokens."""

    file: FilePath
    """Path of the CSV, relative to the problem file (command line only)."""
    buckets: Annotated[int, Field(ge=1, le=100)] = 9
    """At most this many workloads."""
    duration_s: Seconds | None = None
    """Seconds that the trace covers; unset: from its first to its last time stamp."""


def _kind_of_model(value: Any) -> str | None:
    is_config = isinstance(value, ConfigDocument) or (
        isinstance(value, dict) and {"config", "config_file"} & set(value)
    )
    return "published" if is_config else _kind_of(value, text="catalogue", mapping="inline")


def _kind_of(value: Any, *, text: str, mapping: str) -> str | None:
    if isinstance(value, str):
        return text
    return mapping if isinstance(value, dict | Document) else None


def _told_apart(kind_of: Callable[[Any], str | None], otherwise: str) -> Discriminator:
    """Chooses among the types of a field by what is given; `otherwise` is said of what is none of them."""
    return Discriminator(kind_of, custom_error_type="sutler_choice", custom_error_message=otherwise)


ModelReference = Annotated[
    Annotated[Name, Tag("catalogue")]
    | Annotated[ConfigDocument, Tag("published")]
    | Annotated[ModelSpecDocument, Tag("inline")],
    _told_apart(_kind_of_model, "must be an id of the catalogue (text), a config.json or an architecture (mappings)"),
]


def _kind_of_precision(value: Any) -> str | None:
    if isinstance(value, list | tuple):
        return "list"
    return _kind_of(value, text="one", mapping="other")


PrecisionChoice = Annotated[
    Annotated[PrecisionName, Tag("one")]
    | Annotated[tuple[PrecisionName, ...], Field(strict=False, min_length=1), Tag("list")],
    _told_apart(_kind_of_precision, "must be a precision such as bf16, or a list of them to choose from"),
]


EngineChoice = Literal["vllm", "sglang", "tensorrt-llm", "any-layout"]
EngineVersion = Annotated[str, Field(max_length=100, pattern=r"^v?\d+(\.\d+)+[0-9A-Za-z.+-]*$")]


class SpeculationDocument(Document):
    """Speculative decoding: tokens are guessed, and checked together in one step."""

    draft_tokens: Annotated[int, Field(ge=1, le=64)]
    """Guesses per step and sequence (vLLM's num_speculative_tokens)."""
    acceptance_fraction: Annotated[float, Field(ge=0, lt=1)]
    """Probability that a guess is accepted where those before it were; engines report it."""
    draft_cost_fraction: Annotated[float, Field(ge=0, le=1)] = 0.05
    """What one guess takes, of a step without any: next to nothing for n-grams, about a twentieth for a layer of the
    model's own (MTP, EAGLE)."""
    method: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=50)]
    """As vLLM calls it: mtp, eagle3, ngram, draft_model, ..."""
    draft_model: Name | None = None
    """What guesses, where that is a model of its own. Its weights take memory that is not counted here."""


class ModelDocument(Document):
    """A model to serve, with its traffic."""

    name: Name
    """The caller's own name for it, unique in the problem."""
    model: ModelReference
    """Id in the catalogue (`sutler catalog models`), its config.json, or its architecture."""
    precision: PrecisionChoice = "bf16"
    """Of the weights: bf16, fp16, fp8, int8, int4 or fp4; or a list, of which each replica gets the one that serves
    the objective best (estimated rates only). The first is what measured rates without a precision are of."""
    kv_precision: PrecisionName | None = None
    """Of the KV cache; unset: 16 bits, as serving engines do unless told otherwise."""
    slo: SloDocument = SloDocument()
    """Latency limits of each workload that has none of its own."""
    prefix_cache_hit_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the input tokens whose KV cache is already there."""
    prefill_share_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of an end-to-end limit that prefill and KV transfer may take where prefill and decode run apart; decode
    gets the rest. Unset: by the lengths of each kind of request, between 0.1 and 0.9."""
    workloads: Annotated[tuple[WorkloadDocument, ...], Field(strict=False, min_length=1, max_length=1000)] | None = (
        None
    )
    """The traffic as buckets; or `trace`."""
    trace: TraceDocument | None = None
    """The traffic as recorded requests; or `workloads`."""
    engine: EngineChoice | None = None
    """What serves this model; unset: the problem's `engine`."""
    engine_version: EngineVersion | None = None
    """Its version; unset: the problem's `engine_version`, where that is of the same engine."""
    speculation: SpeculationDocument | None = None
    """Speculative decoding that its servers are started with; unset: none."""
    max_context_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Tokens of input and output that servers accept in one request, and that the KV cache of every replica holds; at
    most the model's own context. Unset: about twice what the longest workload needs."""
    max_utilisation_fraction: PositiveFraction | None = None
    """Load of its replicas over what they sustain, at most; unset: as far as its limits and
    `limits.max_utilisation_fraction` allow."""
    min_replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Replicas that answer its requests, at least; where prompts run apart, those that decode."""
    min_on_demand_replicas: Annotated[int, Field(ge=0, le=10_000)] = 0
    """How many of them stand on machines that are not interruptible, at least: what is left when all spot is gone."""

    @property
    def precisions(self) -> tuple[PrecisionName, ...]:
        """The one precision, or all that there are to choose from."""
        return (self.precision,) if isinstance(self.precision, str) else self.precision


class ExcludeDocument(Document):
    """Which offers do not count, whatever the rest of the filter says. What matches no offer is named in the plan."""

    providers: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Leave out offers of these providers."""
    regions: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Leave out offers of these regions; `US` leaves out `US-TX` too."""
    gpus: Annotated[tuple[GpuName, ...], Field(strict=False)] = ()
    """Leave out offers of these GPUs."""
    offers: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Leave out these offers, each as `provider/offer_id`."""
    hosts: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Leave out all machines of these hosts, each as `provider/host_id` or as host_id alone."""
    machines: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Leave out these machines, each as `provider/machine_id`."""


class FilterDocument(Document):
    """Which offers count. An empty list filters nothing."""

    providers: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Keep offers of these providers."""
    regions: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    """Keep offers of these regions; `US` keeps `US-TX` too. Offers of unknown region do not pass."""
    gpus: Annotated[tuple[GpuName, ...], Field(strict=False)] = ()
    """Keep offers of these GPUs."""
    contracts: Annotated[tuple[ContractName, ...], Field(strict=False)] = ("on_demand", "reserved")
    """Keep offers under these contracts. What may be taken away (`interruptible`, `spot`) has to be asked for."""
    min_reliability_fraction: Fraction | None = None
    """Drop offers measured below this. Offers whose provider states no reliability pass, and the plan says so."""
    max_age_s: Seconds | None = None
    """Offers last seen longer ago are stale; unset: 900 s for the store, no check for files."""
    stale: Literal["exclude", "flag"] = "exclude"
    """Leave stale offers out, or plan with them; either way the plan names their providers."""
    exclude: ExcludeDocument = ExcludeDocument()
    """What is left out by name."""
    fit: FitChoice = "on"
    """Which offers are fit to serve: `on`, all rules at their usual values; `off`, none; or rules with values of your
    own, the others as usual: {min_lifetime_s: 3600, verified: off}. Machines that are held are never unfit."""


def _kind_of_offers(value: Any) -> str | None:
    return _kind_of(value, text="path", mapping="snapshot")


OffersReference = Annotated[
    Annotated[FilePath, Tag("path")] | Annotated[MarketDocument, Tag("snapshot")],
    _told_apart(_kind_of_offers, "must be the path of a snapshot file (text) or a whole snapshot (a mapping)"),
]


class MarketSourceDocument(Document):
    """Where the offers come from."""

    offers: OffersReference | None = None
    """Path of a snapshot file, relative to the problem file (command line only), or a whole snapshot."""
    live: bool = False
    """Poll the providers now (those of the filter, or all that are set up). Unset and without `offers`: the store."""
    filter: FilterDocument = FilterDocument()
    """Which of the offers count."""
    stock: Annotated[tuple[StockDocument, ...], Field(strict=False, max_length=1000)] = ()
    """Machines that you know can be had, whatever the market shows; filters and limits hold for them."""
    networks: Annotated[tuple[NetworkDocument, ...], Field(strict=False, max_length=1000)] = ()
    """Networks between machines that you know of."""
    interruptions: Annotated[tuple[InterruptionsDocument, ...], Field(strict=False, max_length=1000)] = ()
    """How often machines are taken away, as you know it; it counts with `objective.count_interruptions`."""

    @model_validator(mode="after")
    def _check_stated(self) -> Self:
        reject([*stated_rules(self.stock, self.networks, self.interruptions)])
        return self


class LimitsDocument(Document):
    """What a plan must not exceed."""

    max_gpus: dict[GpuName, Count] = Field(default={})
    """GPUs of a type."""
    max_gpus_per_provider: dict[Name, Count] = Field(default={})
    """GPUs of a provider."""
    max_machines_per_host: Annotated[Count, Field(ge=1)] | None = None
    """Rented machines of one host, so that its loss takes no more with it: of offers of a provider that state the
    same `host_id`, or the same `machine_id` where they state no host; each slice counts as one. Where neither is
    stated every machine is on a host of its own."""
    max_share_per_provider_fraction: PositiveFraction = 1.0
    """Share of the routed requests/s that one provider may serve."""
    max_share_per_contract_fraction: dict[ContractName, PositiveFraction] = Field(default={})
    """Share of the routed requests/s that replicas on machines of a contract may serve: `{interruptible: 0.5}`."""
    max_utilisation_fraction: PositiveFraction | None = None
    """Load of a replica over what it sustains, at most; unset: as far as the latency limits allow. Rates that you
    measured say nothing of latencies: with a TTFT or end-to-end limit they count up to 0.85, else up to 1."""
    max_power_watts: Watts | None = None
    """The TDP of all rented GPUs, or what they are capped to, in sum."""


def _one_or_several(value: Any) -> Any:
    """Takes one loss for a list of one, and `spot`, as clouds say, for interruptible."""
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list | tuple):
        return value
    return ["interruptible" if one == "spot" else one for one in named]


class ResilienceDocument(Document):
    """What a plan is to survive. After the loss of any one of what is named the rest of the fleet carries a share of
    the load, routed anew; the plan has the routing for each loss."""

    survive: Annotated[
        tuple[LossName, ...],
        BeforeValidator(_one_or_several, json_schema_input_type=LossName | list[LossName]),
        Field(strict=False, max_length=4),
    ] = ()
    """`provider`: all machines of one; `place`: all of a provider's region; `machine`: any one machine;
    `interruptible`: everything that may be taken away, at once. One or a list; losses do not come together."""
    load_fraction: PositiveFraction = 1.0
    """Share of the load that is carried then: of what the plan routes, or with min_cost and min_power of the given
    load, without headroom."""
    detection_s: Seconds = 60.0
    """Until requests are sent by the routing for the loss; simulations count with it."""


class SearchDocument(Document):
    """Which configurations are considered."""

    tensor_parallel: Annotated[tuple[ParallelSize, ...], Field(strict=False, min_length=1)] = (1, 2, 4, 8)
    """Tensor-parallel sizes of a stage."""
    max_pipeline_stages: Annotated[int, Field(ge=1, le=8)] = 4
    """Most pipeline stages of a replica. Where pipelines across machines are too many to be listed, the deep ones are
    generated at the prices of the market, and the plan says that its proof is not of all."""
    mixed_gpu_pipelines: bool | None = None
    """Pipelines whose stages are of different GPU types; unset: what the engine is made for, so only with
    `any-layout`. With true, others run them at one tensor-parallel size, with the smallest stage's KV cache."""
    disaggregation: DisaggregationChoice = "off"
    """Whether prompts (prefill) and answers (decode) run on replicas of their own, on one network or machine: `off`,
    never; `auto`, where that is better; `only`, always. Engines must be able to hand over KV caches."""
    power_caps_fraction: Annotated[
        tuple[Annotated[float, Field(ge=0.1, lt=1)], ...], Field(strict=False, max_length=8)
    ] = ()
    """Shares of the TDP to which GPUs may be capped, each replica to one of them or not at all: [0.5] for half. They
    count with min_power and limits.max_power_watts, and for estimated rates."""
    expert_parallel: bool = True
    """Mixtures of experts also with attention data parallelism, where the engine can (vllm, sglang): replicas of one
    stage on as many GPUs as `tensor_parallel` allows, whose experts are spread over all of them."""


class SolverDocument(Document):
    """How hard to try."""

    method: Literal["exact", "binary_search"] = "exact"
    """`binary_search` is the makespan search of the literature, for comparison."""
    relative_gap: Annotated[float, Field(ge=1e-6, le=0.5)] = 0.001
    """Stop when the plan is proven this close to the best possible."""
    time_limit_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    """Seconds after which the best plan so far is returned with its gap."""
    tolerance_fraction: Annotated[float, Field(ge=1e-6, le=0.5)] = 0.001
    """Of the binary search, relative to the makespan."""
    alternatives: bool = True
    """Also solve without each rented GPU type in turn, and at the low end of every error band."""


class MeasuredStageDocument(Document):
    """One pipeline stage of a measured replica."""

    gpu: GpuName
    """GPU of the stage."""
    tensor_parallel: ParallelSize
    """GPUs of the stage."""


class MeasuredRateDocument(Document):
    """What one replica was measured to sustain."""

    model: Name
    """`name` of the model."""
    stages: Annotated[tuple[MeasuredStageDocument, ...], Field(strict=False, min_length=1, max_length=8)]
    """Stages in pipeline order."""
    role: Literal["aggregated", "prefill", "decode"] = "aggregated"
    """What the replica did: whole requests, their prompts with the first token, or the tokens after it. Rows of the
    last two count with `search.disaggregation: auto` or `only`."""
    rps: Annotated[dict[Name, Rate], Field(min_length=1)]
    """Requests per second by workload; a workload left out has rate 0."""
    precision: PrecisionName | None = None
    """Of its weights; unset: the model's, the first where it lists several."""


def _kind_of_calibration(value: Any) -> str | None:
    if isinstance(value, CalibrationFile) or (isinstance(value, dict) and value.keys() == {"file"}):
        return "file"
    if isinstance(value, dict) and "schema" not in value:
        return None
    return _kind_of(value, text="name", mapping="document")


CalibrationReference = Annotated[
    Annotated[Name, Tag("name")]
    | Annotated[CalibrationFile, Tag("file")]
    | Annotated[CalibrationDocument, Tag("document")],
    _told_apart(
        _kind_of_calibration,
        "must be the name of a stored calibration (text, in quotes where YAML takes it for "
        "something else), {file: path} or a whole calibration",
    ),
]


class ThroughputDocument(Document):
    """Where rates come from. Measured ones of the caller's own win over every estimate."""

    only: bool = False
    """Use no estimate at all: configurations that are not in the table do not exist."""
    calibration: CalibrationReference | None = None
    """Estimate by the caller's own runs (`sutler calibrate`): the name of a stored calibration, {file: path} of one
    that was written to a file (command line only), or all of it. Unset: as shipped."""
    estimates: Literal["narrowest_band", "aiconfigurator", "roofline"] = "narrowest_band"
    """Who estimates what was not measured: the roofline, or where aiconfigurator-core is installed its operators,
    whichever states the narrower band; or one of them wherever it can."""
    table: Annotated[tuple[MeasuredRateDocument, ...], Field(strict=False, max_length=100_000)] = ()
    """One row per measured configuration."""
