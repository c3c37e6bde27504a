"""What goes in: one planning problem, frozen, checked at birth.

The service builds it from the caller's document (service/plans/translate.py); the solver trusts it.
Units are in the names; GPU identity is a catalogue slug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from solver.catalog.entries import Gpu, ModelSpec, Precision

if TYPE_CHECKING:  # the throughput layer is about problems itself
    from solver.throughput.factors import Calibration

ObjectiveKind = Literal["max_throughput", "min_makespan", "min_cost", "min_power"]
Method = Literal["exact", "binary_search"]
Contract = Literal["on_demand", "interruptible", "reserved"]
Estimates = Literal["narrowest_band", "aiconfigurator", "roofline"]
LatencyMetric = Literal["ttft", "tpot", "e2e"]
Role = Literal["aggregated", "prefill", "decode"]
Disaggregation = Literal["off", "auto", "only"]


@dataclass(frozen=True, slots=True)
class Objective:
    """`headroom_fraction` is used by min_cost and min_power: the fleet carries (1 + headroom) times the demand."""

    kind: ObjectiveKind
    headroom_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One bucket of requests. `demand` is requests/s, or a number of requests when the objective is min_makespan."""

    name: str
    input_tokens: float
    output_tokens: float
    demand: float


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
    """

    name: str
    spec: ModelSpec | None
    precision: Precision
    kv_precision: Precision
    workloads: tuple[Workload, ...]
    slo: tuple[LatencyLimit, ...] = ()
    prefix_cache_hit_fraction: float = 0.0
    prefill_share_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """Something for rent, as in the market snapshot (docs: `sutler schema market`).

    `price_usd_per_hour` is for the whole offer. `available` counts how many such offers can be rented.
    `held`: rented already, at this price and with this many GPUs; such an offer names no machine, since nobody else
    can take a slice of it, and may stand beside one of the same id that is still for rent.
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
    held: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_utilisation_fraction` None: 0.85 for models with a TTFT or end-to-end limit, else 1."""

    max_gpus: Mapping[str, int] = field(default_factory=dict)
    max_gpus_per_provider: Mapping[str, int] = field(default_factory=dict)
    max_share_per_provider_fraction: float = 1.0
    max_utilisation_fraction: float | None = None
    max_power_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Which configurations to consider.

    `disaggregation`: whether prefill and decode may run on replicas of their own (`auto`), have to (`only`), or not.
    `power_caps_fraction`: shares of their TDP to which GPUs may be capped.
    """

    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)
    max_pipeline_stages: int = 4
    mixed_gpu_pipelines: bool = True
    disaggregation: Disaggregation = "off"
    power_caps_fraction: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """`tolerance_fraction` is the binary search's, relative to the makespan. `robustness`: whether the alternatives
    include the one at the low end of every band."""

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

    A workload left out has rate 0.
    """

    model: str
    stages: tuple[MeasuredStage, ...]
    rps: Mapping[str, float]
    role: Role = "aggregated"


@dataclass(frozen=True, slots=True)
class Derating:
    """Replicas of a model with these stages, in pipeline order, are counted on for `fraction` of their rate."""

    model: str
    stages: tuple[MeasuredStage, ...]
    fraction: float
    role: Role = "aggregated"


@dataclass(frozen=True, slots=True)
class Problem:
    """A whole planning problem. `gpus` holds every GPU that an offer or a measured rate names, by slug.

    `derated`: what simulations have shown of configurations that miss their limits at their full rate.
    `calibration`: the caller's own; None: the one that is shipped. `estimates`: who answers where nothing was
    measured; by default whichever of roofline and operator database states the narrower band.
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
