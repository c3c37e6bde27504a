"""The day's planning problem, through the product's documents: one model, its buckets, what is for rent and held."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.day.fleet import Fleet, fleet_of
from benchmarks.day.market import CONTRACTS, ForRent
from benchmarks.day.traffic import Bucket
from benchmarks.day.world import Machine, Speeds
from sutler.service.documents.market import MarketDocument, OfferDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import (
    FilterDocument,
    MarketSourceDocument,
    MinCost,
    ModelDocument,
    SearchDocument,
    SloDocument,
    SolverDocument,
    WorkloadDocument,
)
from sutler.service.translation.to_problem import to_problem
from sutler.solver import Problem, solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.market.pools import INTRA_STEPS_GB_PER_S, checkpoint_gb, round_down
from sutler.solver.problem import Offer
from sutler.solver.replanning.holding import Holding, HoldingKey, held_offer
from sutler.solver.throughput import points
from sutler.solver.throughput.base import Layouts

FloatArray = NDArray[np.float64]

STARTS: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)
MODEL: Final = "qwen3-32b"
PRECISION: Final = "fp8"
NAME: Final = "assistant"
HEADROOM_FRACTION: Final = 0.3
GPUS: Final = frozenset(
    {
        "l40s",
        "rtx-4090",
        "rtx-5090",
        "a100-sxm4-80gb",
        "h100-sxm",
        "h200-sxm",
    }
)
LEAST_RPS: Final = 1e-3
TTFT_P90_S: Final = 3.0
TRUTH_SIGMA: Final = 0.09
"""Of the logarithm of what a GPU type truly does over what is estimated: half of the types are off by 6 % or more,
one in ten by 15 %, as for GPUs that nothing was measured on (results/accuracy.txt, leaving one GPU out, vLLM)."""
_TENSOR_PARALLEL: Final = (1, 2, 4)
_FILTER: Final = FilterDocument(min_reliability_fraction=0.95, contracts=CONTRACTS)
_NOT_OF_AN_OFFER: Final = frozenset({"feed"})


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans for these buckets. `relative_gap` and time limit are those of the simulation, not of the product."""

    buckets: tuple[Bucket, ...]
    relative_gap: float = 0.02
    time_limit_s: float = 2.5

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(bucket.name for bucket in self.buckets)

    def document(
        self,
        rates_rps: FloatArray,
        *,
        headroom_fraction: float = HEADROOM_FRACTION,
        market: MarketDocument | None = None,
    ) -> ProblemDocument:
        """The problem as its owner would write it; a bucket without requests stays in it at next to nothing."""
        workloads = tuple(
            WorkloadDocument(
                name=bucket.name,
                input_tokens=bucket.input_tokens,
                output_tokens=bucket.output_tokens,
                rate_rps=max(float(rate), LEAST_RPS),
            )
            for bucket, rate in zip(self.buckets, rates_rps, strict=True)
        )
        slo = SloDocument(ttft_p90_s=TTFT_P90_S)
        model = ModelDocument(name=NAME, model=MODEL, precision=PRECISION, slo=slo, workloads=workloads)
        return ProblemDocument(
            objective=MinCost(kind="min_cost", headroom_fraction=headroom_fraction),
            models=(model,),
            market=MarketSourceDocument(offers=market, filter=_FILTER),
            search=SearchDocument(tensor_parallel=_TENSOR_PARALLEL, max_pipeline_stages=1),
            solver=SolverDocument(relative_gap=self.relative_gap, time_limit_s=self.time_limit_s, alternatives=False),
        )

    def problem(
        self,
        rates_rps: FloatArray,
        offers: Sequence[ForRent],
        at_s: float,
        *,
        held: Sequence[Machine] = (),
        headroom_fraction: float = HEADROOM_FRACTION,
    ) -> Problem:
        """What is held is supply too, at the price paid."""
        market = MarketDocument(taken_at=instant(at_s), offers=tuple(document_of(each) for each in offers))
        document = self.document(rates_rps, headroom_fraction=headroom_fraction, market=market)
        rented = {machine.lease.gpu for machine in held}
        problem = to_problem(document, folder=None, now=instant(at_s), rented_gpus=rented).problem
        return replace(problem, offers=(*problem.offers, *_held(held)))

    def fleet(self, problem: Problem) -> Fleet | None:
        """The best fleet for a problem; None where the market has none."""
        plan = solve(problem)
        if plan.status not in {"optimal", "feasible"}:
            return None
        shares = {route.workload: {share.replica: share.fraction for share in route.shares} for route in plan.routing}
        return fleet_of(plan, shares, self.names)


def instant(at_s: float) -> datetime:
    """The moment `at_s` seconds into the day."""
    return datetime.fromtimestamp(STARTS.timestamp() + at_s, UTC)


def weights_gb() -> float:
    """What a new machine downloads."""
    return checkpoint_gb(load_models()[MODEL], PRECISION)


def truth(seed: int) -> dict[str, float]:
    """By GPU type, what it truly does over what is estimated."""
    drawn = np.random.default_rng([seed, 2]).normal(0.0, TRUTH_SIGMA, len(GPUS))
    return {gpu: math.exp(each) for gpu, each in zip(sorted(GPUS), drawn, strict=True)}


def speeds_of(planner: Planner, some: Sequence[ForRent], truly: Mapping[str, float]) -> Speeds:
    """What engines sustain of each bucket within the limits: the planner's own estimates, times what is true of the
    GPU type."""
    problem = planner.problem(np.ones(len(planner.buckets)), some, 0.0)
    gpus = load_gpus()

    @lru_cache(maxsize=10_000)
    def known(gpu: str, tensor_parallel: int, intra_gb_per_s: float) -> FloatArray:
        layouts = Layouts(
            gpus=(gpus[gpu],),
            gpu=np.zeros((1, 1), dtype=np.int64),
            tensor_parallel=np.full((1, 1), tensor_parallel, dtype=np.int64),
            intra_gb_per_s=np.full((1, 1), intra_gb_per_s),
            hop_gb_per_s=np.full((1, 1), np.inf),
            cross_machine=np.zeros((1, 1), dtype=np.bool_),
        )
        (model,) = problem.models
        alone = points(problem, model, layouts).rps[:, : len(model.workloads)]
        return np.asarray(alone.max(axis=0, initial=0.0) * truly.get(gpu, 1.0))

    def speed(gpu: str, tensor_parallel: int, intra_gb_per_s: float | None) -> FloatArray:
        usual = gpus[gpu].link_gb_per_s or 0.0
        stated = usual if intra_gb_per_s is None or tensor_parallel == 1 else intra_gb_per_s
        return known(gpu, tensor_parallel, round_down(stated, INTRA_STEPS_GB_PER_S))

    return speed


def document_of(each: ForRent) -> OfferDocument:
    """Makes the offer as the market snapshot has it."""
    offer = each.offer
    fields = {name: getattr(offer, name) for name in offer.__slots__ if name not in _NOT_OF_AN_OFFER}
    return OfferDocument(provider=each.provider, **fields)


def _held(machines: Sequence[Machine]) -> Iterator[Offer]:
    """Makes one offer for machines that cannot be told apart, at their mean price."""
    by_kind: dict[HoldingKey, list[Machine]] = defaultdict(list)
    for machine in machines:
        by_kind[machine.lease.kind].append(machine)
    for kind, same in by_kind.items():
        usd_per_hour = sum(machine.lease.price_usd_per_hour for machine in same) / len(same)
        lease, rented = same[0].lease, same[0].rented.offer
        like = Offer(
            lease.provider,
            lease.offer_id,
            lease.gpu,
            lease.gpus,
            len(same),
            usd_per_hour,
            rented.contract,
            region=rented.region,
            reliability_fraction=rented.reliability_fraction,
            intra_machine_gb_per_s=rented.intra_machine_gb_per_s,
        )
        yield held_offer(Holding(kind, lease.gpu, len(same), usd_per_hour), like)
