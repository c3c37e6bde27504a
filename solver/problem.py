"""What goes in: one planning problem, frozen, checked at birth.

The service builds it from the caller's document (service/translation/to_problem.py); the solver trusts it.
Units are in the names; GPU identity is a catalogue slug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Protocol

from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.units import SECONDS_PER_HOUR

if TYPE_CHECKING:  # the throughput layer is about problems itself
    from sutler.solver.calibration.factors import Calibration

ObjectiveKind = Literal["max_throughput", "min_makespan", "min_cost", "min_power"]
Method = Literal["exact", "binary_search"]
Contract = Literal["on_demand", "interruptible", "reserved"]
Estimates = Literal["narrowest_band", "aiconfigurator", "roofline"]
LatencyMetric = Literal["ttft", "tpot", "e2e"]
Role = Literal["aggregated", "prefill", "decode"]
Disaggregation = Literal["off", "auto", "only"]
InterruptionsBasis = Literal["stated", "seen", "assumed"]
LossKind = Literal["provider", "place", "machine", "interruptible"]
"""What may be lost at once: all that one provider rents out, all of it in one region, one machine, or everything that
is interruptible."""
LeastReplicas = Literal["min_replicas", "min_on_demand_replicas"]
EngineName = Literal["vllm", "sglang", "tensorrt-llm", "any-layout"]
"""What serves a model, which decides the layouts that exist (candidates/engines.py); `any-layout` runs whatever can
be drawn."""


@dataclass(frozen=True, slots=True)
class Objective:
    """`headroom_fraction` is used by min_cost and min_power: the fleet carries (1 + headroom) times the demand.

    `give_up_fraction`: of the optimum, what may be given up for load at the low end of the bands. `robust`: every
    rate counts as the low end of its band. One of the two at most.

    `count_interruptions`: machines count at what they cost with those that are taken away, of which each is replaced
    by one that is paid for `restart_s` seconds before it serves.
    """

    kind: ObjectiveKind
    headroom_fraction: float = 0.0
    give_up_fraction: float = 0.0
    robust: bool = False
    count_interruptions: bool = False
    restart_s: float = 0.0

    @property
    def maximises_rate(self) -> bool:
        """Whether the load is what plans are to carry the most of, instead of being given."""
        return self.kind in ("max_throughput", "min_makespan")

    @property
    def carried_load(self) -> float:
        """How many times the routed load every plan carries."""
        return 1.0 + self.headroom_fraction * (not self.maximises_rate)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding. In every step `draft_tokens` are guessed for each sequence and checked together; one is
    accepted with probability `acceptance_fraction` where those before it were. Guessing one takes
    `draft_cost_fraction` of a step. `method`, `draft_model`: what the engine is told.
    """

    draft_tokens: int
    acceptance_fraction: float
    draft_cost_fraction: float
    method: str
    draft_model: str | None = None

    @property
    def checked_tokens(self) -> int:
        """Of a sequence in a step."""
        return 1 + self.draft_tokens

    @property
    def tokens_per_step(self) -> float:
        """What a sequence gets of a step: the guesses that are accepted in a row, and one more (Leviathan et al.
        2023, arXiv 2211.17192, eq. 1)."""
        return float(sum(self.acceptance_fraction**place for place in range(self.checked_tokens)))

    @property
    def seconds_per_token(self) -> float:
        """Of a second that checking takes, guesses included."""
        return (1.0 + self.draft_tokens * self.draft_cost_fraction) / self.tokens_per_step


NO_GUESSES: Final = Speculation(draft_tokens=0, acceptance_fraction=0.0, draft_cost_fraction=0.0, method="")


@dataclass(frozen=True, slots=True)
class Workload:
    """One bucket of requests. `demand` is requests/s, or a number of requests when the objective is min_makespan.

    `slo`: its own limits, `prefix_cache_hit_fraction`: what of its prompts is in the prefix cache; None: as of its
    model.
    """

    name: str
    input_tokens: float
    output_tokens: float
    demand: float
    slo: "tuple[LatencyLimit, ...] | None" = None
    prefix_cache_hit_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """At most `seconds` for `percentile` (50, 90, 95 or 99) percent of the requests."""

    metric: LatencyMetric
    percentile: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model to be served with its traffic. `spec` is None where only measured rates are used.

    `prefill_share_fraction`: of an end-to-end limit, what prefill and transfer may take where prefill and decode run
    on replicas of their own; None: by the lengths of each kind of request (throughput/roles.py).
    `max_utilisation_fraction`: caps the load ceilings of its replicas; None: `Limits` does.
    `max_context_tokens`: that servers accept and the KV cache of every replica holds at least once; None: twice what
    the longest workload needs, rounded up.
    `more_precisions`: at which replicas may run besides `precision`, as (weights, KV cache).
    `min_replicas`: that answer, whole requests or as decode replicas, at least; `min_on_demand_replicas`: of those on
    machines none of which is interruptible.
    """

    name: str
    spec: ModelSpec | None
    precision: Precision
    kv_precision: Precision
    workloads: tuple[Workload, ...]
    slo: tuple[LatencyLimit, ...] = ()
    prefix_cache_hit_fraction: float = 0.0
    prefill_share_fraction: float | None = None
    max_utilisation_fraction: float | None = None
    engine: EngineName = "vllm"
    engine_version: str = ""
    speculation: Speculation | None = None
    max_context_tokens: int | None = None
    more_precisions: tuple[tuple[Precision, Precision], ...] = ()
    min_replicas: int = 1
    min_on_demand_replicas: int = 0

    def cached_fraction(self, workload: Workload) -> float:
        """What of the workload's prompts is in the prefix cache."""
        own = workload.prefix_cache_hit_fraction
        return self.prefix_cache_hit_fraction if own is None else own

    @property
    def least_replicas(self) -> "dict[LeastReplicas, int]":
        """What asks for more replicas than the load may need, by the field that does."""
        asked: dict[LeastReplicas, int] = {}
        if self.min_replicas > 1:
            asked["min_replicas"] = self.min_replicas
        if self.min_on_demand_replicas:
            asked["min_on_demand_replicas"] = self.min_on_demand_replicas
        return asked

    def without_least_replicas(self) -> "ServedModel":
        """The model of which no number of replicas is asked for."""
        return replace(self, min_replicas=1, min_on_demand_replicas=0)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """All at which a replica may run; one means that there is nothing to choose."""
        return (self.precision, *(weights for weights, _ in self.more_precisions))

    @property
    def at_each_precision(self) -> "tuple[ServedModel, ...]":
        """The model as replicas run it, by precision."""
        return tuple(self.at(precision) for precision in self.precisions)

    def at(self, precision: Precision | None) -> "ServedModel":
        """The model as a replica at one precision runs it; None: the first.

        What runs may be at one that the model no longer lists, with the KV cache of the first.
        """
        weights = precision or self.precision
        cache = dict(self.more_precisions).get(weights, self.kv_precision)
        return replace(self, precision=weights, kv_precision=cache, more_precisions=())

    def with_workload(self, index: int, workload: Workload) -> "ServedModel":
        """The model with another workload in place of number `index`."""
        return replace(self, workloads=(*self.workloads[:index], workload, *self.workloads[index + 1 :]))

    @property
    def is_limited(self) -> bool:
        """Whether any of its requests has latency limits."""
        return any(self.limits_of(workload) for workload in self.workloads)

    def limits_of(self, workload: Workload) -> tuple[LatencyLimit, ...]:
        """What its requests must keep."""
        return self.slo if workload.slo is None else workload.slo


@dataclass(frozen=True, slots=True)
class Offer:
    """Something for rent, as in the market snapshot (docs: `sutler schema market`).

    `price_usd_per_hour` is for the whole offer. `available` counts how many such offers can be rented.
    `held`: rented already, at this price and with this many GPUs; such an offer names no machine, since nobody else
    can take a slice of it, and may stand beside one of the same id that is still for rent.
    `unfit_for`: models, by name and precision, that it cannot serve though its GPUs could: no replica is put there.
    Bandwidths are 10^9 bytes/s, one direction, per GPU (intra) or per machine (inter).
    """

    provider: str
    offer_id: str
    gpu: str
    gpus: int
    available: int
    price_usd_per_hour: float
    contract: Contract = "on_demand"
    divisible: bool = False
    machine_id: str | None = None
    machine_gpus: int | None = None
    gpu_ids: tuple[int, ...] | None = None
    site: str | None = None
    region: str | None = None
    reliability_fraction: float | None = None
    intra_machine_gb_per_s: float | None = None
    inter_machine_gb_per_s: float | None = None
    disk_gb: float | None = None
    disk_included_gb: float = 0.0
    disk_usd_per_gb_month: float = 0.0
    inet_down_gb_per_s: float | None = None
    inet_down_usd_per_gb: float | None = None
    inet_up_usd_per_gb: float | None = None
    host_id: str | None = None
    unfit_for: frozenset[tuple[str, Precision]] = frozenset()
    held: bool = False

    @property
    def host(self) -> str | None:
        """What it fails and vanishes with: its host, or its machine where only that is stated; None: neither is."""
        return self.host_id or self.machine_id

    def on_its_own(self) -> "Offer":
        """The offer without what else is on its machine, on the same host."""
        return replace(self, machine_id=None, machine_gpus=None, gpu_ids=None, host_id=self.host)

    def serves(self, model: "ServedModel") -> bool:
        """Whether the model, at its first precision, may run on it."""
        return (model.name, model.precision) not in self.unfit_for


@dataclass(frozen=True, slots=True)
class Interruptions:
    """How often each machine of a kind is taken away; a provider or GPU of None stands for all.

    `low_per_hour` and `high_per_hour`: the ends of the 90 % interval; None: not known. `losses` in `machine_hours` is
    what was seen of the kind itself.
    """

    contract: Contract
    per_hour: float
    provider: str | None = None
    gpu: str | None = None
    basis: InterruptionsBasis = "stated"
    low_per_hour: float | None = None
    high_per_hour: float | None = None
    losses: int | None = None
    machine_hours: float | None = None

    def covers(self, provider: str, contract: Contract, gpu: str) -> bool:
        own = (self.provider or provider, self.contract, self.gpu or gpu)
        return own == (provider, contract, gpu)


class OfKind(Protocol):
    """A machine of a provider under a contract: an offer, or a rental."""

    @property
    def provider(self) -> str: ...
    @property
    def contract(self) -> Contract: ...
    @property
    def gpu(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_utilisation_fraction`: caps the load ceilings of all replicas, which latency limits set lower; None: 1.
    `max_machines_per_host`: rented machines of one `Offer.host`; those of which none is stated are on their own.

    Shares are of the routed requests/s; a replica on machines of several contracts counts for each of them.
    """

    max_gpus: Mapping[str, int] = field(default_factory=dict)
    max_gpus_per_provider: Mapping[str, int] = field(default_factory=dict)
    max_machines_per_host: int | None = None
    max_share_per_provider_fraction: float = 1.0
    max_share_per_contract_fraction: Mapping[Contract, float] = field(default_factory=dict)
    max_utilisation_fraction: float | None = None
    max_power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Resilience:
    """After the loss of any one of what `survive` names, the rest of the fleet carries `load_fraction` of the load:
    of what is routed, or of what min_cost and min_power are asked for, without headroom. Shares may be exceeded then.

    `detection_s`: until requests are sent by the routing for that loss.
    """

    survive: tuple[LossKind, ...] = ()
    load_fraction: float = 1.0
    detection_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Search:
    """Which configurations to consider.

    `mixed_gpu_pipelines` None: what the engine of each model is made for.
    `disaggregation`: whether prefill and decode may run on replicas of their own (`auto`), have to (`only`), or not.
    `power_caps_fraction`: shares of their TDP to which GPUs may be capped.
    `expert_parallel`: whether mixtures of experts may run with attention data parallelism, their experts spread.
    """

    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)
    max_pipeline_stages: int = 4
    mixed_gpu_pipelines: bool | None = None
    disaggregation: Disaggregation = "off"
    power_caps_fraction: tuple[float, ...] = ()
    expert_parallel: bool = True


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """`tolerance_fraction` is the binary search's, relative to the makespan. `robustness`: whether the alternatives
    include the one at the low end of every band, and the one at 8 bits."""

    method: Method = "exact"
    relative_gap: float = 0.001
    time_limit_s: float = 30.0
    tolerance_fraction: float = 0.001
    alternatives: bool = True
    robustness: bool = True


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    gpu: str
    tensor_parallel: int


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A row of the caller's table: what one replica with these stages (in pipeline order) sustains in its role.

    A workload left out has rate 0. `precision`: of its weights; None: whatever the model's is.
    """

    model: str
    stages: tuple[MeasuredStage, ...]
    rps: Mapping[str, float]
    role: Role = "aggregated"
    precision: Precision | None = None


@dataclass(frozen=True, slots=True)
class Derating:
    """Replicas of a model with these stages, in pipeline order, and so many ranks of attention, are counted on for
    `fraction` of their rate of a workload (None: of all). `precision`: of those at it alone; None: of all."""

    model: str
    stages: tuple[MeasuredStage, ...]
    fraction: float
    role: Role = "aggregated"
    workload: str | None = None
    data_parallel: int = 1
    precision: Precision | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A whole planning problem. `gpus` holds every GPU that an offer or a measured rate names, by slug.

    `derated`: what simulations have shown of configurations that miss their limits at their full rate.
    `calibration`: the caller's own; None: the one that is shipped. `estimates`: who answers where nothing was
    measured; by default whichever of roofline and operator database states the narrower band. `interruptions`: of
    those of a machine the first counts.
    """

    objective: Objective
    models: tuple[ServedModel, ...]
    offers: tuple[Offer, ...]
    gpus: Mapping[str, Gpu]
    budget_usd_per_hour: float | None = None
    limits: Limits = field(default_factory=Limits)
    search: Search = field(default_factory=Search)
    options: SolveOptions = field(default_factory=SolveOptions)
    measured: tuple[MeasuredRate, ...] = ()
    measured_only: bool = False
    derated: tuple[Derating, ...] = ()
    calibration: "Calibration | None" = None
    estimates: Estimates = "narrowest_band"
    resilience: Resilience = field(default_factory=Resilience)
    interruptions: tuple[Interruptions, ...] = ()

    @property
    def total_demand(self) -> float:
        """All offered requests/s (or requests)."""
        return sum(workload.demand for model in self.models for workload in model.workloads)

    @property
    def keeps_reserve(self) -> bool:
        """Whether replicas may be rented that serve nothing as long as all goes well."""
        return bool(self.resilience.survive) or any(model.least_replicas for model in self.models)

    def interruptions_of(self, one: OfKind) -> Interruptions | None:
        """How often a machine is taken away, where that counts."""
        if not self.objective.count_interruptions:
            return None
        return next((rate for rate in self.interruptions if rate.covers(one.provider, one.contract, one.gpu)), None)

    def starting_fraction(self, one: OfKind) -> float:
        """For how many hours machines that start in its place are paid, per hour in which it serves."""
        rate = self.interruptions_of(one)
        return 0.0 if rate is None else rate.per_hour * self.objective.restart_s / SECONDS_PER_HOUR

    def with_model(self, index: int, model: ServedModel) -> "Problem":
        """The problem with another model in place of number `index`."""
        return replace(self, models=(*self.models[:index], model, *self.models[index + 1 :]))

    def with_headroom(self, fraction: float) -> "Problem":
        """The problem whose plans carry so much more than the load."""
        return replace(self, objective=replace(self.objective, headroom_fraction=fraction))
