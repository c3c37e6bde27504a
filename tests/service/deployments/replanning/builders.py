"""Small problems with measured rates alone, their plans, and what is seen of traffic, market and holdings.

One H100 serves 20 questions/s or 5 documents/s, one RTX 4090 6 or 1: the usual load takes two H100s.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import OfferKey, Settled
from sutler.service.deployments.replanning.shared_market import SeenMarket
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic.planned import shapes, stated_rps
from sutler.service.deployments.traffic.window import ModelTraffic, Observation, model_traffic
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_plan import solver_plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.outlook.interruptions import LearntRate
from sutler.solver.plan import Rental
from sutler.solver.problem import Offer
from sutler.solver.replanning import FleetChange, OptionKind, ReplanOption

START: Final = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
QUESTIONS_RPS: Final = 20.0
DOCUMENTS_RPS: Final = 2.0
SIZES: Final = {"question": (500.0, 250.0), "document": (3000.0, 300.0)}
RATES: Final[dict[str, dict[str, float]]] = {
    "h100-sxm": {"question": 20.0, "document": 5.0},
    "rtx-4090": {"question": 6.0, "document": 1.0},
}
STEADY: Final[dict[str, Any]] = {
    "rate_drift_fraction": 0.2,
    "mix_drift": 0.2,
    "window_s": 120.0,
    "shrink_after_s": 3600.0,
    "refine_s": 1800.0,
    "cooldown_s": 300.0,
    "horizon_s": 3600.0,
    "max_age_s": None,
    "carry_out_s": 0.0,
    "settle_s": 600.0,
    "least_gain_fraction": 0.05,
    "payback_s": 3600.0,
    "urgent_payback_s": 3600.0,
    "startup_s": 90.0,
    "download_gb_per_s": 0.25,
    "restart_s": 60.0,
    "drain_s": 30.0,
    "min_rental_s": 0.0,
    "avoid_lost_s": 0.0,
}


def a_policy(**others: Any) -> PolicyDocument:
    """Every number is said, so that none is a default's."""
    return PolicyDocument(**{"automatic": True, **STEADY, **others})


def an_offer(offer_id: str = "large", **others: Any) -> OfferDocument:
    given: dict[str, Any] = {
        "provider": "acme",
        "offer_id": offer_id,
        "gpu": "h100-sxm",
        "gpus": 1,
        "available": 8,
        "price_usd_per_hour": 2.0,
        "contract": "on_demand",
    }
    return OfferDocument(**{**given, **others})


def a_market() -> tuple[OfferDocument, ...]:
    """The cheapest fleet is of acme's large machines; bolt has the same, dearer; the small ones are dearest."""
    return (
        an_offer(),
        an_offer(provider="bolt", price_usd_per_hour=2.4),
        an_offer("small", gpu="rtx-4090", price_usd_per_hour=0.7),
    )


def a_problem(
    questions_rps: float = QUESTIONS_RPS,
    documents_rps: float = DOCUMENTS_RPS,
    *,
    objective: Mapping[str, Any] | None = None,
    **others: Any,
) -> ProblemDocument:
    """Of one model; for the least cost with a fifth of headroom, unless said otherwise."""
    rates = {"question": questions_rps, "document": documents_rps}
    workloads = [
        {"name": name, "input_tokens": SIZES[name][0], "output_tokens": SIZES[name][1], "rate_rps": rps}
        for name, rps in rates.items()
    ]
    rows = [
        {"model": "chat", "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": rps} for gpu, rps in RATES.items()
    ]
    given = {
        "objective": dict(objective or {"kind": "min_cost", "headroom_fraction": 0.2}),
        "models": [{"name": "chat", "model": "llama-3.1-8b", "workloads": workloads}],
        "throughput": {"only": True, "table": rows},
        **others,
    }
    return validate(ProblemDocument, given)


def seen_at(offers: Sequence[OfferDocument], at: datetime, interruptions: tuple[LearntRate, ...] = ()) -> SeenMarket:
    """A market that was polled now."""
    offers = tuple(offer.model_copy(update={"observed_at": offer.observed_at or at}) for offer in offers)
    last_seen: dict[str, datetime] = {}
    for offer in offers:
        seen = offer.observed_at or at
        last_seen[offer.provider] = max(seen, last_seen.get(offer.provider, seen))
    return SeenMarket(StoredMarket(at, offers, last_seen, interruptions=interruptions))


def a_plan(
    problem: ProblemDocument | None = None,
    offers: Sequence[OfferDocument] | None = None,
    *,
    at: datetime = START,
    revision: int = 1,
) -> PlanDocument:
    """The best on this market."""
    market = seen_at(a_market() if offers is None else offers, at)
    translation = to_problem(problem or a_problem(), folder=None, now=at, store=market)
    solved = solve(translation.problem)
    return issue_plan(solved, translation, plan_id=UUID(int=revision), created_at=at, revision=revision)


def a_rental(offer_id: str = "large", count: int = 2, **others: Any) -> Rental:
    given: dict[str, Any] = {
        "provider": "acme",
        "site": None,
        "gpu": "h100-sxm",
        "gpus": 1,
        "price_usd_per_hour": 2.0,
        "contract": "on_demand",
    }
    return Rental(offer_id, count=count, **{**given, **others})


def an_offer_of(document: OfferDocument) -> Offer:
    """As the solver sees it."""
    return Offer(**document.model_dump(include=set(Offer.__slots__)))


def offers_of(documents: Sequence[OfferDocument]) -> tuple[Offer, ...]:
    return tuple(an_offer_of(document) for document in documents)


def a_holding(offer_id: str = "large", count: int = 2, **others: Any) -> HoldingDocument:
    given: dict[str, Any] = {
        "provider": "acme",
        "gpu": "h100-sxm",
        "gpus": 1,
        "price_usd_per_hour": 2.0,
        "contract": "on_demand",
    }
    return HoldingDocument(offer_id=offer_id, count=count, **{**given, **others})


def holdings_as_planned(plan: PlanDocument) -> tuple[HoldingDocument, ...]:
    """The plan is carried out."""
    return tuple(
        HoldingDocument(
            provider=rental.provider,
            offer_id=rental.offer_id,
            gpu=rental.gpu,
            gpus=rental.gpus,
            count=rental.count,
            price_usd_per_hour=rental.price_usd_per_hour,
            contract=rental.contract,
        )
        for rental in plan.rentals
    )


def all_settled(offers: Sequence[OfferDocument], **prices: tuple[float, float]) -> dict[OfferKey, Settled]:
    """Offers that have held; by offer id (highest, lowest) prices, where they have moved."""
    found = {}
    for offer in offers:
        each = offer.price_usd_per_hour / offer.gpus
        high, low = prices.get(offer.offer_id, (each, each))
        found[offer.key] = Settled(high, low, offer.available)
    return found


def observed(
    questions_rps: float,
    documents_rps: float,
    *,
    until: datetime = START,
    length_s: float = 7200.0,
    slice_s: float = 60.0,
    tokens_factor: float = 1.0,
) -> list[Observation]:
    """A gateway that tells every minute of what came, evenly."""
    rates = {"question": questions_rps, "document": documents_rps}
    buckets = tuple(
        (SIZES[name][0] * tokens_factor, SIZES[name][1] * tokens_factor, rps * slice_s)
        for name, rps in rates.items()
        if rps > 0
    )
    ends = [until - timedelta(seconds=number * slice_s) for number in range(round(length_s / slice_s))]
    requests = (questions_rps + documents_rps) * slice_s
    return [Observation("chat", "gateway", end - timedelta(seconds=slice_s), end, requests, buckets) for end in ends]


def known_of(
    observations: Sequence[Observation],
    *,
    at: datetime = START,
    policy: PolicyDocument | None = None,
    planned: ProblemDocument | None = None,
) -> dict[str, ModelTraffic]:
    """What a look knows of the traffic."""
    policy = policy or a_policy()
    [model] = (planned or a_problem()).models
    known = model_traffic(
        "chat",
        shapes(model),
        observations,
        now=at,
        window_s=policy.window_s,
        longest_s=policy.horizon_s,
        planned_rps=stated_rps(model),
        lull_s=policy.shrink_after_s,
    )
    return {"chat": known}


def traffic(
    questions_rps: float = QUESTIONS_RPS,
    documents_rps: float = DOCUMENTS_RPS,
    *,
    at: datetime = START,
    length_s: float = 7200.0,
    tokens_factor: float = 1.0,
    policy: PolicyDocument | None = None,
) -> dict[str, ModelTraffic]:
    """What is known after so long of nothing but this."""
    seen = observed(questions_rps, documents_rps, until=at, length_s=length_s, tokens_factor=tokens_factor)
    return known_of(seen, at=at, policy=policy)


def an_option(kind: OptionKind, **others: Any) -> ReplanOption:
    """Carries all with the usual headroom; what a test does not name gains and costs nothing."""
    usd = others.pop("switching_usd", 0.0)
    given: dict[str, Any] = {
        "plan": solver_plan(a_plan()),
        "capacity_rps": QUESTIONS_RPS + DOCUMENTS_RPS,
        "load_multiple": 1.3,
        "cost_usd_per_hour": 4.0,
        "carries": True,
        "change": FleetChange(0, 0, 0, usd, 0.0),
        "benefit_usd_per_hour": 0.0,
        "net_usd": 0.0,
    }
    return ReplanOption(kind, **{**given, **others})
