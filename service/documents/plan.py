"""The plan document: which offers to rent, what runs on them, where each workload goes, and the proof.

Units: requests/s, seconds, USD per hour, watts (TDP or cap). Keys are only ever added, never changed or taken away.
"""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.fields import Document, Timestamp
from sutler.service.documents.market import ContractName, ProviderUsed
from sutler.service.documents.model import GpuDocument, ModelSpecDocument, PrecisionName
from sutler.service.documents.problem_parts import EngineChoice, ResilienceDocument, SloDocument, SpeculationDocument

Fractions = dict[str, float]


class ObjectiveResult(Document):
    """How good the plan is and how good any plan could be."""

    kind: Literal["max_throughput", "min_makespan", "min_cost", "min_power"]
    """Which objective."""
    value: float | None
    """Requests/s, seconds, USD per hour or watts; null without a plan."""
    bound: float | None
    """Proven: no plan is better than this; same unit."""
    relative_gap: float | None
    """|bound - value| / |value|."""
    optimum_value: float | None = None
    """With `objective.give_up_fraction`: the value of which a fraction was given up; `status` says how well that is
    proven. With `objective.robust`: the best value at the rates themselves, null where time ran out. Else null."""


class ChanceDocument(Document):
    """How likely a machine is still there when you come, learnt from the lives of machines in the store."""

    chance_of_still_there_fraction: float
    """The chance that it has as many GPUs for rent still, or again, `within_s` after the plan was made."""
    low_fraction: float
    """Low end of its 90 % interval."""
    high_fraction: float
    """High end of its 90 % interval."""
    within_s: float
    """Seconds from the plan until you come; the time since the offer was seen last is counted besides."""
    expected_lifetime_s: float
    """Seconds that it goes on to be for rent, on average, at the mean rates; a year at most."""
    machines: int
    """Machines of its kind (provider, GPU, contract, as many GPUs) that were watched."""
    lives: int
    """Stretches of time that they were for rent."""
    deaths: int
    """How many of these were seen to end."""


class MachinesDocument(Document):
    """`count` machines (or slices) of one offer."""

    offer_id: str
    """The provider's id."""
    provider: str
    """Who rents it out."""
    site: str | None
    """Where it stands, if the market says it."""
    gpu: str
    """Slug of the GPU."""
    gpus: int
    """GPUs of one machine."""
    count: int
    """Machines."""
    price_usd_per_hour: float
    """USD per hour and machine, storage included; the total is price x count."""
    contract: ContractName
    """As in the market snapshot."""
    storage_gb: float
    """Disk to rent with each machine, GB; 0 where the offer does not price or limit its disk."""
    storage_usd_per_hour: float
    """USD per hour and machine for disk above what the price includes; part of the price."""


class SpareDocument(MachinesDocument):
    """An offer that can take a rental's place, with as many machines and everything else as planned."""

    machine_id: str | None = None
    """The machine, where the market names it: its offers change their ids."""
    outlook: ChanceDocument | None = None
    """How likely it is still there; null where no lives of such machines are known."""


class RentalDocument(MachinesDocument):
    """`count` machines (or slices) of one offer."""

    held: bool = False
    """Rented already, as reported in the deployment's holdings."""
    traffic_usd_per_hour: float | None = None
    """USD per hour for requests and answers over the internet, of all its machines at the planned traffic; no part of
    the price; null: the offer states no prices of traffic."""
    start_usd: float | None = None
    """USD, once, for downloading the weights to all its machines that are not held yet; null: not stated."""
    machine_id: str | None = None
    """The machine, where the market names it: its offers change their ids."""
    outlook: ChanceDocument | None = None
    """How likely it is still there; null where it is held, and where no lives of such machines are known."""
    spares: Annotated[tuple[SpareDocument, ...], Field(strict=False)] = ()
    """What can take its place if it is gone, in order of preference: by price over chance. Each offer is a spare of
    one rental; whichever are taken together, the plan keeps its budget and limits."""


class StageDocument(Document):
    """One pipeline stage of a replica."""

    gpu: str
    """Slug of the GPU."""
    tensor_parallel: int
    """GPUs that share a layer: those of the stage, of each rank where the replica has several (`data_parallel`)."""
    layers: int | None
    """Layers of the model on this stage; null where the architecture is unknown."""
    rental: int
    """Index into `rentals`."""
    machine: int
    """Which of that rental's `count` machines, from 0."""
    gpu_indices: tuple[int, ...]
    """Which GPUs of that machine, from 0."""
    piece: int
    """Stages of a replica with the same piece share a machine."""
    intra_gb_per_s: float | None = None
    """Bandwidth between its GPUs that the rate rests on, 10^9 bytes/s one way; null where there is no such link."""
    hop_gb_per_s: float | None = None
    """The same to the next stage; null on the last."""
    power_cap_watts: float | None = None
    """What each of its GPUs is to be capped to (`nvidia-smi -pl`); null: not at all."""

    @property
    def gpus(self) -> int:
        """How many GPUs the stage has."""
        return len(self.gpu_indices)


class ReplicaDocument(Document):
    """One running replica of a model."""

    id: str
    """Unique in the plan."""
    model: str
    """The caller's name of the model."""
    role: Literal["aggregated", "prefill", "decode"]
    """What the replica does."""
    stages: tuple[StageDocument, ...]
    """In pipeline order."""
    max_batch: int | None
    """Most concurrent sequences; null where unknown."""
    utilisation_fraction: float
    """Sum over workloads of routed rate / rate that it sustains at `max_batch` (`evidence`)."""
    throughput_rps: Fractions
    """Requests/s routed to it, by workload."""
    engine_args: dict[str, str | int | float | bool]
    """How to start it, by vLLM's names whatever the engine."""
    engine_env: dict[str, str]
    """Environment variables to start it with."""
    engine: EngineChoice = "vllm"
    """What serves it; `any-layout`: an engine that runs the stages as they are."""
    max_load_fraction: float | None = None
    """The utilisation up to which requests in these proportions keep all their limits; null in plans of versions
    before this field."""
    data_parallel: Annotated[int, Field(ge=1)] = 1
    """Ranks of attention, each with the requests of its own on `tensor_parallel` GPUs; GPUs are
    tensor_parallel x stages x data_parallel."""
    expert_parallel: Annotated[int, Field(ge=1)] = 1
    """GPUs between which whole experts are spread; 1: each is split like all other weights."""
    precision: PrecisionName | None = None
    """Of its weights; null in plans of versions before this field: the model's."""
    checkpoint: str | None = None
    """The repository whose weights are at that precision; null where none is known."""
    sustained_rps: Fractions = Field(default_factory=dict)
    """Requests/s that it sustains of each workload of its model alone, all its sequences busy, as the plan counts on
    it; empty in plans of versions before this field."""


class PlannedWorkload(Document):
    """One bucket of requests that the plan was made for."""

    name: str
    """Name of the workload."""
    input_tokens: float
    """Mean tokens of a prompt."""
    output_tokens: float
    """Mean tokens of an answer."""
    rate_rps: float | None = None
    """Requests/s; null under min_makespan."""
    requests: float | None = None
    """Number of requests; min_makespan only."""
    slo: SloDocument | None = None
    """All its limits; null: those of the model."""
    prefix_cache_hit_fraction: float | None = None
    """Share of the prompt tokens that are in the prefix cache; null: as the model has it."""


class PlannedPrecision(Document):
    """One of several precisions that replicas may have."""

    precision: PrecisionName
    """Of the weights."""
    kv_precision: PrecisionName
    """Of the KV cache."""


class PlannedModel(Document):
    """What is served: enough to estimate or to simulate the plan again, whatever becomes of the catalogue."""

    name: str
    """The caller's name of the model."""
    architecture: ModelSpecDocument | None
    """Null where only measured rates were used."""
    model: str | None = None
    """Its id, by which measured runs know it: of the catalogue, or the name; null where rates alone are known."""
    precision: PrecisionName
    """Of the weights; the first where several were searched."""
    kv_precision: PrecisionName
    """Of the KV cache."""
    prefix_cache_hit_fraction: float
    """Share of the prompt tokens that are in the prefix cache."""
    prefill_share_fraction: float | None = None
    """Of an end-to-end limit, what prefill and KV transfer may take; null: by the lengths of the requests."""
    workloads: tuple[PlannedWorkload, ...]
    """Its traffic."""
    slo: SloDocument
    """The limits of workloads that have none of their own."""
    more_precisions: Annotated[tuple[PlannedPrecision, ...], Field(strict=False)] = ()
    """Those that replicas may have besides, where a list was given."""
    engine: EngineChoice = "vllm"
    """Whose speed its rates are of."""
    engine_version: str = ""
    """The version; empty: a current one."""
    speculation: SpeculationDocument | None = None
    """How its tokens are guessed; null: they are not."""


class RouteDocument(Document):
    """Where one workload goes: to aggregated and to prefill replicas; `kv_transfers` say how it goes on."""

    model: str
    """The caller's name of the model."""
    workload: str
    """Name of the workload."""
    fractions: Fractions
    """Share of its requests by replica id; sums to 1."""


class KvTransferDocument(Document):
    """Which prefill replica feeds which decode replica."""

    model: str
    """The caller's name of the model."""
    workload: str
    """Name of the workload."""
    prefill: str
    """Id of the prefill replica."""
    decode: str
    """Id of the decode replica."""
    fraction: float
    """Share of all requests of the workload that goes this way; what aggregated replicas serve is in `routing`."""
    kv_gb: float | None
    """Keys and values of one prompt, 10^9 bytes; null where the architecture is unknown."""
    exposed_s: float | None
    """Seconds of their transfer that the prefill does not hide."""


class ComboDocument(Document):
    """Prefill and decode replicas of one model on one network, read as a GPU Combo."""

    model: str
    """The caller's name of the model."""
    network: str
    """The network that keys and values go over, as provider:site; inside one machine its offer, rental and number."""
    prefill_replicas: int
    """Replicas that prefill."""
    decode_replicas: int
    """Replicas that decode."""
    prefill_gpus: dict[str, int]
    """GPUs that prefill, by slug."""
    decode_gpus: dict[str, int]
    """GPUs that decode, by slug."""
    tokens_per_usd: float | None
    """Prompt tokens per USD of the prefill GPUs plus answer tokens per USD of the decode GPUs, as planned."""
    a1_tokens_per_flop: float | None
    """Prompt tokens per floating-point operation of this model on this traffic; null where the architecture is
    unknown."""
    a2_tokens_per_byte: float | None
    """Answer tokens per byte of GPU memory read, at the batch of the decode replicas; null as above."""
    peak_tokens_per_usd: float | None
    """Tokens per USD that both coefficients promise at the GPUs' peak TFLOPS (bf16) and memory bandwidth: a measure
    to compare GPUs by, not a rate to expect."""


class LossDocument(Document):
    """What is left of the plan when something is lost."""

    kind: Literal["provider", "place", "machine", "interruptible"]
    """What kind of loss."""
    name: str
    """Of the provider, `provider/region` (`?`: the provider states none), `interruptible`, or a machine: its provider
    and its `machine_id`, or `provider/offer_id/number`, counted from 0 over the offer's rentals."""
    replicas: tuple[str, ...]
    """Those that fall with it."""
    carried_fraction: float
    """Of the load, what the others carry, 1 at most."""
    routing: tuple[RouteDocument, ...] = ()
    """How requests are to be sent then; empty where the problem does not ask to survive it."""
    kv_transfers: tuple[KvTransferDocument, ...] = ()
    """Which prefill replica then feeds which decode replica."""


class BindingDocument(Document):
    """A constraint that binds, and what one more unit of it would bring."""

    constraint: str
    """budget, supply/<pool>/<size>, network/<provider>:<site>, limit/<name> or demand/<model>/<workload>; network/all
    stands for more than four networks together."""
    shadow_price: float
    """Dual of the linear relaxation; of a network, what the relaxed plan gains if keys and values take no time on
    it."""
    unit: str
    """Unit of the shadow price."""


class AlternativeDocument(Document):
    """The best plan under one extra condition."""

    without: str
    """The GPU that is forbidden in it; `resilience`: it need not survive anything, so that the difference is what
    surviving costs."""
    value: float | None
    """In the objective's unit; null where no such plan was found."""
    cost_usd_per_hour: float | None
    """USD per hour."""
    rentals: tuple[RentalDocument, ...]
    """What it rents."""


class PrecisionAlternativeDocument(Document):
    """A fleet with the weights of some models at a smaller precision; better ones may exist."""

    precision: PrecisionName
    """Of their weights."""
    checkpoints: dict[str, str | None]
    """By the caller's name of the model: the repository with those weights; null where none is known, and the engine
    quantises what it loads."""
    value: float
    """In the objective's unit."""
    cost_usd_per_hour: float
    """USD per hour."""
    better_by_fraction: float
    """By how much its value is better than the plan's; requests/s: higher, else lower."""


class RobustAlternativeDocument(Document):
    """The best plan when every rate is at the low end of its band, within the same budget and limits."""

    value_at_low: float
    """In the objective's unit, at the low ends."""
    value: float
    """The same fleet at the rates themselves."""
    load_multiple_at_low: float | None
    """Multiple of the given load that it carries at the low ends; min_cost and min_power only."""
    load_multiple: float | None
    """The same at the rates themselves."""
    cost_usd_per_hour: float
    """USD per hour."""
    rentals: tuple[RentalDocument, ...]
    """What it rents."""


class RobustnessDocument(Document):
    """What the plan's fleet does when every rate is at the low end of its error band."""

    low_fraction: float
    """Mean of low end / rate, over the requests/s as they are routed; 1 where rates are taken as given."""
    value_at_low: float
    """In the objective's unit, routed anew; cost and power stay what they are."""
    load_multiple_at_low: float | None
    """Largest multiple of the given load that it carries there; min_cost and min_power only."""
    verdict: Literal["better", "none_better", "cannot_carry", "unknown"]
    """Whether another plan is better there by more than the gap, or carries the load there where this one does not:
    there is one (`better`); there is none; no fleet carries the load there; the search ended before it knew."""
    reason: str | None
    """What the verdict rests on; null where the alternative is proven to be within 0.5 % of the best."""
    bound_at_low: float | None
    """Proven: no plan is better than this there, in the objective's unit; null where nothing is proven."""
    alternative: RobustAlternativeDocument | None
    """The plan that is best there; null unless the verdict is `better`."""
    most_load_multiple_at_low: float | None
    """Where no fleet carries the load there: the largest multiple of it that was found."""
    near_optimum: RobustAlternativeDocument | None = None
    """The fleet found that carries the most there for `near_optimum_fraction` of the objective; null where none
    carries more than the plan's own. `objective.give_up_fraction` (`--give-up`) takes it."""
    near_optimum_fraction: float | None = None
    """Null where none was sought: rates taken as given, or no time left."""


class ConflictDocument(Document):
    """What has to give in a problem without a plan. All conflicts together are enough: those of load (`rps`),
    headroom and tokens per request by lowering these to `available`, the others by raising to `needed`."""

    constraint: str
    """Named as in `binding`; besides, headroom, network, limit/slo/<model>/<limit>, limit/slo_split/<model> (the
    share of an end-to-end limit that prefill gets) and demand/<model>/<workload>/<role>."""
    needed: float
    """What a plan would need."""
    available: float
    """What there is."""
    unit: str
    """Unit of both."""
    remedy: str
    """What to change."""


class UnfitOffer(Document):
    """An offer that a rule of `market.filter.fit` left out."""

    provider: str
    """Who rents it out."""
    offer_id: str
    """The provider's id."""
    gpu: str
    """Slug of the GPU."""
    gpus: int
    """GPUs of the offer."""
    price_usd_per_hour: float
    """USD per hour for the whole offer."""
    contract: ContractName
    """As in the market snapshot."""


class FitRule(Document):
    """What one rule of `market.filter.fit` did to the market."""

    rule: str
    """Name of the rule."""
    at_least: str
    """What it asks for."""
    left_out: int
    """Offers that it left out. Each counts at the first rule that it breaks."""
    left_out_for_some: int
    """Offers that it left out for some of the models or precisions."""
    not_stated: int
    """Offers that do not state what the rule is about, and passed."""
    cheapest: UnfitOffer | None
    """Of what was left out, what would have saved most, else the cheapest by the GPU; null: nothing was left out."""
    would_save_usd_per_hour: float | None
    """What that offer would have saved in place of the dearest machine alike that the plan rents, storage aside; 0:
    it is no cheaper; null: the plan rents none of its GPU and size. What a rule costs in all: plan with it `off`."""


class MarketUsed(Document):
    """The market that the plan rests on."""

    taken_at: Timestamp
    """When the snapshot was taken; of the store's market, when the oldest offer that counts was last seen."""
    age_s: float
    """Seconds from then to the plan."""
    offers: int
    """Offers that passed the filter."""
    providers: Annotated[tuple[ProviderUsed, ...], Field(strict=False)] = ()
    """By provider, sorted by name."""
    fit: Annotated[tuple[FitRule, ...], Field(strict=False)] = ()
    """What each rule of `market.filter.fit` that is on has left out."""


class EvidenceDocument(Document):
    """Where the rate of one replica on one workload comes from."""

    replica: str
    """Id of the replica."""
    workload: str
    """Name of the workload."""
    source: str
    """measured, profiles (the caller's own runs), roofline, aiconfigurator, or several joined by a plus."""
    detail: str
    """What the number rests on."""
    rps: float
    """Requests/s the replica sustains on this workload alone."""
    low_rps: float
    """Low end of the stated error band."""
    high_rps: float
    """High end of the stated error band."""
    version: str = ""
    """Version of the source's data; empty for measured rates."""


class PhaseDocument(Document):
    """Time spent in one phase of the solve."""

    phase: str
    """Name of the phase."""
    seconds: float
    """Seconds in it."""


class SolverReport(Document):
    """How the plan was found."""

    method: Literal["exact", "binary_search"]
    """As asked for."""
    seconds: float
    """Seconds of the whole solve."""
    candidates: int
    """Configurations considered, after memory check and dominance."""
    version: str
    """Version of sutler."""
    phases: tuple[PhaseDocument, ...]
    """Where the seconds went."""
    limit: str | None
    """Which limit ended the solve, if one did."""


class ValidatedLimit(Document):
    """One latency limit of a model or a workload, as the simulated plan kept it."""

    model: str
    """The caller's name of the model."""
    metric: Literal["ttft", "tpot", "e2e"]
    """Time to first token, time per output token after the first, whole request."""
    percentile: int
    """Of the requests, in percent."""
    seconds: float
    """The limit."""
    within_fraction: float
    """Share of the requests within it."""
    met: bool
    """Whether as many as asked for are within it."""
    workload: str | None = None
    """Which workload has it for itself; null: all that are under the model's limit, together."""

    @property
    def owner(self) -> str:
        """Whose limit it is: `chat`, or `chat/batch`."""
        return self.model if self.workload is None else f"{self.model}/{self.workload}"


class DeratedStage(Document):
    """One pipeline stage."""

    gpu: str
    """Slug of the GPU."""
    tensor_parallel: int
    """GPUs of the stage."""


class DeratedConfiguration(Document):
    """Replicas that missed limits at the load that they were planned for, and were counted on for less."""

    model: str
    """The caller's name of the model."""
    role: Literal["aggregated", "prefill", "decode"] = "aggregated"
    """What they do."""
    stages: tuple[DeratedStage, ...]
    """In pipeline order."""
    fraction: float
    """Share of the estimated rate that is counted on."""
    workload: str | None = None
    """For which workload; null: for all."""
    data_parallel: int = 1
    """Ranks of attention."""
    precision: PrecisionName | None = None
    """Of their weights; null in plans of versions before this field."""


class TriedPlan(Document):
    """One plan that was replayed."""

    round: int
    """0: as planned at first; after that, the round of corrections. A plan that meets its limits is followed, in its
    round, by plans with less of them."""
    fleet: Literal["any", "same"]
    """Planned over all configurations, or over those of the first plan alone."""
    value: float | None
    """In the objective's unit."""
    cost_usd_per_hour: float | None
    """USD per hour."""
    meets_all_limits: bool
    """Whether it met every limit."""
    most_missed_fraction: float
    """Share of the requests that the limit which was missed the most lacked; 0 where all were met."""


class ValidationDocument(Document):
    """What replaying the plan has shown."""

    traffic: str
    """What was replayed, in words."""
    requests: int
    """How many requests."""
    rounds: int
    """Plans that were replayed: 1 if the first met its limits."""
    meets_all_limits: bool
    """Whether this plan meets every limit of every model."""
    limits: tuple[ValidatedLimit, ...]
    """Each limit."""
    derated: tuple[DeratedConfiguration, ...]
    """What was counted on for less than estimated."""
    tried: Annotated[tuple[TriedPlan, ...], Field(strict=False)] = ()
    """Every plan that was replayed, in order; this one is the best of them."""


class PlannedInterruptions(Document):
    """How often each machine of a kind is taken away, as the plan counts it."""

    contract: ContractName
    """As in the market snapshot."""
    provider: str | None
    """Whose machines; null: all."""
    gpu: str | None
    """Their GPU; null: all."""
    per_hour: float
    """Times per machine and hour."""
    basis: Literal["stated", "seen", "assumed"]
    """Stated by the problem, seen of machines that were held, or assumed where nothing is known."""
    low_per_hour: float | None
    """Low end of the 90 % interval; null where it is stated."""
    high_per_hour: float | None
    """High end of the 90 % interval; null where it is stated."""
    losses: int | None
    """Machines of the kind that were lost; null where it is stated."""
    machine_hours: float | None
    """For how long such machines were held; null where it is stated."""


class AvailabilityDocument(Document):
    """How likely the whole plan can be rented, where each machine comes and goes for itself."""

    within_s: float
    """Seconds from the plan until you come."""
    chance_fraction: float
    """That every rental is still there."""
    chance_with_spares_fraction: float
    """That of every rental, it or one of its spares is."""


class SleepingDocument(Document):
    """A model that is not served, since its deployment's policy lets it sleep while there are no requests."""

    model: str
    """The caller's name of the model."""
    starts_in_s: float
    """Seconds from its waking until machines serve it, about: `policy.startup_s` and the download of the weights."""


class PlanDocument(Document):
    """A plan with its proof. Under min_cost and min_power, rates and routing are at the given load."""

    schema_: Literal["sutler/plan/v1"] = Field(alias="schema")
    """Version of this format."""
    id: Annotated[UUID, Field(strict=False)]
    """Identity of this plan."""
    revision: Annotated[int, Field(ge=1)]
    """Counts the plans of a deployment; 1 for a plan of its own."""
    created_at: Timestamp
    """When the plan was made."""
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    """Proven within the asked gap; a limit was hit and the gap says how far; nothing can be; nothing was found."""
    objective: ObjectiveResult
    """How good it is."""
    throughput_rps: float | None
    """Requests/s of all models."""
    makespan_s: float | None
    """Seconds; min_makespan only."""
    load_multiple: float | None
    """Largest multiple of the given load that the fleet carries."""
    cost_usd_per_hour: float | None
    """USD per hour of all rentals."""
    expected_cost_usd_per_hour: float | None = None
    """USD per hour with the machines that start in the place of those that are taken away, on average; null where
    `objective.count_interruptions` did not ask for it. With min_cost it is the value."""
    power_watts: float | None
    """What all rented GPUs may draw: their TDP, or their caps; those that run nothing, the lowest cap allowed."""
    usd_per_million_tokens: float | None
    """Input and output tokens together."""
    rentals: tuple[RentalDocument, ...]
    """What to rent."""
    replicas: tuple[ReplicaDocument, ...]
    """What runs on it, one entry per running replica."""
    routing: tuple[RouteDocument, ...]
    """Where each workload goes."""
    kv_transfers: Annotated[tuple[KvTransferDocument, ...], Field(strict=False)] = ()
    """Which prefill replica feeds which decode replica; empty without such replicas."""
    combos: Annotated[tuple[ComboDocument, ...], Field(strict=False)] = ()
    """The same by model and network: the ratio of prefill to decode, and tokens per USD."""
    models: Annotated[tuple[PlannedModel, ...], Field(strict=False)] = ()
    """What it serves; empty in plans of versions before this field."""
    gpus: dict[str, GpuDocument] = Field(default_factory=dict)
    """Figures of the GPUs that replicas run on, by slug."""
    sleeping: Annotated[tuple[SleepingDocument, ...], Field(strict=False)] = ()
    """Models that it does not serve, since the policy of its deployment lets them sleep; where all sleep, the plan
    rents nothing."""
    resilience: ResilienceDocument | None = None
    """What it was asked to survive; null: nothing."""
    losses: Annotated[tuple[LossDocument, ...], Field(strict=False)] = ()
    """What is left after losses, worst first: all of the kinds that `resilience.survive` names, and the worst of each
    other kind; empty in plans of versions before this field."""
    interruptions: Annotated[tuple[PlannedInterruptions, ...], Field(strict=False)] = ()
    """How often its machines are taken away, where that counts."""
    binding: tuple[BindingDocument, ...]
    """What limits the plan."""
    alternatives: tuple[AlternativeDocument, ...]
    """What the next best compositions would bring."""
    robustness: RobustnessDocument | None = None
    """What it is worth at the low end of every error band; null without alternatives and in plans of a running
    fleet."""
    conflicts: tuple[ConflictDocument, ...]
    """Why there is no plan; empty where there is one."""
    market: MarketUsed
    """The market that the plan rests on."""
    evidence: tuple[EvidenceDocument, ...]
    """Where the rates come from."""
    solver: SolverReport
    """How the plan was found."""
    calibration: CalibrationDocument | None = None
    """The caller's own runs that rates rest on; null: the calibration that is shipped."""
    validation: ValidationDocument | None = None
    """What replaying it has shown, where that was asked for."""
    warnings: tuple[str, ...]
    """What to know before trusting it."""
    notes: tuple[str, ...]
    """How the input was read: buckets of a trace, offers that passed with unknown reliability, ..."""
    availability: AvailabilityDocument | None = None
    """How likely it can be rented; null where nothing is to be rented, or of a rental no lives are known."""
    precision_alternative: PrecisionAlternativeDocument | None = None
    """What 8-bit weights would bring to models that are asked for at 16 bits; null where that is less than 1 %, where
    rates are measured, without alternatives and in plans of a running fleet. Quality is the caller's to judge."""

    @property
    def in_words(self) -> str:
        """What it is, where it runs nothing."""
        return "a plan whose models all sleep" if self.sleeping else f"a plan that is {self.status}"
