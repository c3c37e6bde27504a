"""What comes out: one plan, frozen. The service adds identity and time stamps (service/json_schemas.py)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import (
    Contract,
    EngineName,
    Interruptions,
    LossKind,
    Method,
    Objective,
    ObjectiveKind,
    Role,
)

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
_FIGURES: Final[dict[ObjectiveKind, str]] = {
    "max_throughput": "throughput_rps",
    "min_makespan": "makespan_s",
    "min_cost": "cost_usd_per_hour",
    "min_power": "power_watts",
}


def figure_of(objective: Objective) -> str:
    """Which figure of a plan is its value."""
    is_expected = objective.kind == "min_cost" and objective.count_interruptions
    return "expected_cost_usd_per_hour" if is_expected else _FIGURES[objective.kind]


RobustVerdict = Literal["better", "none_better", "cannot_carry", "unknown"]


@dataclass(frozen=True, slots=True)
class Rental:
    """`count` machines (or slices) of one offer. Prices are per machine and hour.

    `price_usd_per_hour` is what one machine costs, storage included: the offer's price (for a divisible offer
    the share of `gpus` GPUs) plus `storage_usd_per_hour`, so that total = price x count. `held`: rented already.
    """

    offer_id: str
    provider: str
    site: str | None
    gpu: str
    gpus: int
    count: int
    price_usd_per_hour: float
    contract: Contract
    storage_gb: float = 0.0
    storage_usd_per_hour: float = 0.0
    held: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage. `rental` indexes the plan's rentals, `machine` which of that rental's machines,
    `gpu_indices` which GPUs of that machine (what CUDA_VISIBLE_DEVICES should say). `layers` is None where the
    architecture is unknown. Stages with the same `piece` (counted from 0 in each replica) must share a machine:
    the hop between them is inside it; hops between pieces are rated as network hops wherever they land.

    `intra_gb_per_s`, `hop_gb_per_s`: the bandwidths that the rate was estimated with, 10^9 bytes/s one way, between
    the GPUs of the stage and to the next stage; None where there is no such link, or it is unknown.
    `power_cap_watts`: what each of its GPUs is to be capped to; None: not at all."""

    gpu: str
    tensor_parallel: int
    layers: int | None
    rental: int
    machine: int
    gpu_indices: tuple[int, ...]
    piece: int = 0
    intra_gb_per_s: float | None = None
    hop_gb_per_s: float | None = None
    power_cap_watts: float | None = None

    @property
    def gpus(self) -> int:
        """The number of its GPUs: tensor_parallel for every rank of its replica."""
        return len(self.gpu_indices)


@dataclass(frozen=True, slots=True)
class WorkloadRate:
    workload: str
    rps: float


@dataclass(frozen=True, slots=True)
class Replica:
    """One running replica. `utilisation_fraction` is the sum of routed rate / sustainable rate at `max_batch`.

    `throughput_rps`: requests that it serves; of a prefill or decode replica those that it takes that far.
    `sustained_rps`: requests/s of each workload of its model alone, with all its time; (): what runs was planned
    before that was stated.
    `max_load_fraction`: the utilisation up to which requests in these proportions keep all their limits; None: what
    runs was planned before that was known.
    `engine_args`: by vLLM's names, whatever the engine; of unequal stages without the sizes, which `stages` state.
    `data_parallel`: ranks of attention, each with the requests of its own on `tensor_parallel` GPUs of the stage;
    `expert_parallel`: GPUs between which whole experts are spread, 1: each is split like all other weights.
    `precision`: of its weights; None: what runs was planned before replicas said so, and has the first of its model.
    `checkpoint`: the repository with those weights, where one is known.
    """

    id: str
    model: str
    role: Role
    stages: tuple[Stage, ...]
    max_batch: int | None
    utilisation_fraction: float
    throughput_rps: tuple[WorkloadRate, ...]
    engine_args: tuple[tuple[str, str | int | float | bool], ...] = ()
    engine_env: tuple[tuple[str, str], ...] = ()
    max_load_fraction: float | None = None
    engine: EngineName = "vllm"
    data_parallel: int = 1
    expert_parallel: int = 1
    precision: Precision | None = None
    checkpoint: str | None = None
    sustained_rps: tuple[WorkloadRate, ...] = ()


def sequences_of(engine_args: Mapping[str, str | int | float | bool]) -> int:
    """The sequences that an engine takes at once on all of its ranks; 0 where its arguments do not say it."""
    return int(engine_args.get("max_num_seqs", 0)) * int(engine_args.get("data_parallel_size", 1))


@dataclass(frozen=True, slots=True)
class Share:
    replica: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Route:
    """Which fraction of one workload goes to which replica; the fractions sum to 1.

    To aggregated and to prefill replicas; where it goes on from there is in `Plan.kv_transfers`.
    """

    model: str
    workload: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """Which prefill replica feeds which decode replica: `fraction` of all requests of the workload go this way.

    `kv_gb`: keys and values of one prompt, 10^9 bytes; None where the architecture is unknown. `exposed_s`: what of
    their transfer the prefill does not hide.
    """

    model: str
    workload: str
    prefill: str
    decode: str
    fraction: float
    kv_gb: float | None
    exposed_s: float | None


@dataclass(frozen=True, slots=True)
class Combo:
    """Prefill and decode replicas of one model on one network or machine, read as a GPU Combo (Cauchy, section 3.3).

    `prefill_gpus`, `decode_gpus`: (GPU, how many). `tokens_per_usd`: prompt tokens per USD of the prefill GPUs plus
    answer tokens per USD of the decode GPUs, as planned (eq. 14). `a1_tokens_per_flop`, `a2_tokens_per_byte`: the
    workload's coefficients (eqs. 12 and 13), `peak_tokens_per_usd`: what they promise at peak rates (eq. 15); None
    where the architecture or a price of 0 leaves them undefined.
    """

    model: str
    network: str
    prefill_replicas: int
    decode_replicas: int
    prefill_gpus: tuple[tuple[str, int], ...]
    decode_gpus: tuple[tuple[str, int], ...]
    tokens_per_usd: float | None
    a1_tokens_per_flop: float | None
    a2_tokens_per_byte: float | None
    peak_tokens_per_usd: float | None


@dataclass(frozen=True, slots=True)
class Loss:
    """What is left of a plan when something is lost: all of a provider, of a provider's region, everything
    interruptible, or one machine.

    `name`: of the provider, `provider/region` (`?`: it states none), the contract, or `provider/offer/number` of a
    machine, `provider/machine_id` where offers state that. `replicas`: that fall with it. `carried_fraction`: of the
    load, what the others carry, 1 at most. `routing`, `kv_transfers`: how requests are sent then; empty where the
    problem does not ask to survive this.
    """

    kind: LossKind
    name: str
    replicas: tuple[str, ...]
    carried_fraction: float
    routing: tuple[Route, ...] = ()
    kv_transfers: tuple[KvTransfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """A constraint that binds and what one more unit of it would bring (dual of the LP relaxation)."""

    constraint: str
    shadow_price: float
    unit: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """The optimum under one extra condition (`without`: a GPU type of the plan forbidden)."""

    without: str
    value: float | None
    cost_usd_per_hour: float | None
    rentals: tuple[Rental, ...]


@dataclass(frozen=True, slots=True)
class PrecisionAlternative:
    """A fleet with the weights of some models at a smaller precision; better ones may exist.

    `checkpoints`: by model the repository with those weights, None where the engine quantises them itself.
    `better_by_fraction`: of the plan's own value.
    """

    precision: Precision
    checkpoints: tuple[tuple[str, str | None], ...]
    value: float
    cost_usd_per_hour: float
    better_by_fraction: float


@dataclass(frozen=True, slots=True)
class RobustAlternative:
    """The best plan when every rate is at the low end of its band. Values are in the objective's unit.

    `value`, `load_multiple`: of its fleet at the rates themselves. Load multiples: min_cost and min_power only.
    """

    value_at_low: float
    value: float
    load_multiple_at_low: float | None
    load_multiple: float | None
    cost_usd_per_hour: float
    rentals: tuple[Rental, ...]


@dataclass(frozen=True, slots=True)
class Robustness:
    """What the plan's fleet does when every rate is at the low end of its band, routed anew.

    `low_fraction`: mean of low end / rate over the requests/s as they are routed. `value_at_low`: in the objective's
    unit; cost and power stay what they are, and `load_multiple_at_low` says what is carried for them.

    `verdict`: whether another plan within the same budget and limits is better there by more than the gap
    (`better`, `none_better`), carries the load there (`better`, `cannot_carry`), or the search ended before it knew
    (`unknown`). `reason`: what the verdict rests on; None: the alternative is proven to be near the best.
    `bound_at_low`: proven, no plan is better than this there; None where nothing is.
    `most_load_multiple_at_low`: where no fleet carries the load, the most that was found.

    `near_optimum`: the fleet found that carries the most there of those within `near_optimum_fraction` of this plan's
    value; None: none that carries more. The fraction is None where none was sought.
    """

    low_fraction: float
    value_at_low: float
    load_multiple_at_low: float | None
    verdict: RobustVerdict
    reason: str | None
    bound_at_low: float | None = None
    alternative: RobustAlternative | None = None
    most_load_multiple_at_low: float | None = None
    near_optimum: RobustAlternative | None = None
    near_optimum_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """What has to give in an infeasible problem: `needed` where only `available` is there.

    The conflicts of a plan count together: with all of them granted (explanation/granting.py) the problem has a plan,
    and with noticeably less of any one of them it has none. Granted means: limits are raised to `needed`, while load
    (`rps`), headroom and tokens per request are lowered to `available`. Supply is what the market would have to
    offer. Where nothing can be set (memory, networks, measured rates) the remedy says what is lacking.
    """

    constraint: str
    needed: float
    available: float
    unit: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the rate of one replica on one workload comes from, with its error band. `version`: of the source's
    data."""

    replica: str
    workload: str
    source: str
    detail: str
    rps: float
    low_rps: float
    high_rps: float
    version: str = ""


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SolveReport:
    method: Method
    seconds: float
    candidates: int
    phases: tuple[PhaseSeconds, ...]
    version: str
    limit: str | None = None  # which limit ended the solve, if one did


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer. For an infeasible or unknown status `value` is None, rentals are empty and conflicts say why.

    `value` is requests/s (max_throughput), seconds (min_makespan), $/h (min_cost) or watts (min_power); `bound` is
    the proven limit of any plan in the same unit. Where interruptions count, $/h are `expected_cost_usd_per_hour`,
    else None, and `interruptions` are those of its rentals. For min_cost and min_power throughput and routing are at
    the offered demand and `load_multiple` is the largest multiple of it that the fleet carries. `robustness` is None
    without a plan, and where it was not asked for.

    `optimum_value`: where a fraction of the optimum is given up, the value that it is a fraction of, and `status`
    says how well that is proven; where low ends are what counts, the best value at the rates themselves, None where
    time ran out; else None. `precision_alternative`: what 8 bits would bring where 16 are asked for; None where that
    is next to nothing, or was not sought. `losses`: all of the kinds that are to be survived, and of each other kind
    the worst, worst first.
    """

    status: Status
    objective: ObjectiveKind
    value: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
    throughput_rps: float | None = None
    makespan_s: float | None = None
    load_multiple: float | None = None
    cost_usd_per_hour: float | None = None
    expected_cost_usd_per_hour: float | None = None
    power_watts: float | None = None
    usd_per_million_tokens: float | None = None
    rentals: tuple[Rental, ...] = ()
    replicas: tuple[Replica, ...] = ()
    routing: tuple[Route, ...] = ()
    binding: tuple[Binding, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()
    solver: SolveReport
    robustness: Robustness | None = None
    kv_transfers: tuple[KvTransfer, ...] = ()
    combos: tuple[Combo, ...] = ()
    optimum_value: float | None = None
    precision_alternative: PrecisionAlternative | None = None
    losses: tuple[Loss, ...] = ()
    interruptions: tuple[Interruptions, ...] = ()
