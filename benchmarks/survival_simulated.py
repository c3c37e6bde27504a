"""Whether plans that are to survive do, request by request: every provider of every plan is lost once.

The whole load goes on to arrive, so that queues grow where only a part of it is carried; what counts is the rate at
which requests are finished once batches have filled up, over the second half of the time.

Flow: random markets of a few providers -> planned with and without the loss to survive -> simulated, one loss each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from random import Random
from typing import Any, Final

from benchmarks.survival_cases import LOAD_FRACTION
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.library.planning import plan as planned
from sutler.service.simulation.losing import Losing
from sutler.service.simulation.simulated import Choices, simulated
from sutler.service.simulation.traffic import PoissonTraffic

PLANS: Final = 100
DURATION_S, LOST_AT_S, DETECTION_S = 600.0, 60.0, 20.0
CARDS: Final = {"rtx-4090": 0.4, "l40s": 0.9, "a100-sxm4-80gb": 1.3, "h100-sxm": 2.2}
MODELS: Final = ("llama-3.1-8b", "qwen2.5-7b")


@dataclass(frozen=True, slots=True)
class Judged:
    """Plans that there were, and of these how many kept their share after each loss, but for what chance takes."""

    plans: int
    kept: int
    least_fraction: float


def judged(*, survives: bool) -> Judged:
    """Plans of the same problems, asked to survive or not, as simulations show them."""
    found = [tuple(_carried(plan)) for plan in _plans(survives=survives)]
    kept = sum(all(keeps_share(*counts) for counts in losses) for losses in found)
    least = min((finished / arrived for losses in found for finished, arrived in losses), default=0.0)
    return Judged(len(found), kept, least)


def keeps_share(finished: int, arrived: int) -> bool:
    """Whether no fewer requests are finished than chance leaves of the share: two standard deviations of a count."""
    share = LOAD_FRACTION * arrived
    return finished >= share - 2 * sqrt(share)


def _carried(plan: PlanDocument) -> Iterator[tuple[int, int]]:
    """Requests that are finished and that arrive, for each provider that is lost."""
    for provider in sorted({rental.provider for rental in plan.rentals}):
        losing = Losing("provider", provider, LOST_AT_S, DETECTION_S)
        found = simulated(plan, PoissonTraffic(DURATION_S), Choices(losing=losing)).outcome
        arrived = found.requests.arrival_s >= DURATION_S / 2
        finished = (found.finish_s >= DURATION_S / 2) & (found.finish_s <= DURATION_S)
        yield int(finished.sum()), int(arrived.sum())


def _plans(*, survives: bool) -> Iterator[PlanDocument]:
    """Of the first problems that have a plan which survives."""
    made = seed = 0
    while made < PLANS:
        surviving = planned(validate(ProblemDocument, _problem(seed, survives=True)))
        if surviving.replicas:
            made += 1
            yield surviving if survives else planned(validate(ProblemDocument, _problem(seed, survives=False)))
        seed += 1


def _problem(seed: int, *, survives: bool) -> dict[str, Any]:
    draw = Random(seed)
    offers = [
        {
            "provider": f"p{draw.randrange(3)}",
            "offer_id": f"{card}-{number}",
            "gpu": card,
            "gpus": 1,
            "available": draw.randint(1, 4),
            "price_usd_per_hour": round(price * draw.uniform(0.8, 1.4), 3),
            "contract": "on_demand",
        }
        for number in range(5)
        for card, price in CARDS.items()
    ]
    workload = {
        "name": "w",
        "input_tokens": draw.choice([300, 800, 1500]),
        "output_tokens": draw.choice([50, 150, 300]),
        "rate_rps": draw.choice([4.0, 10.0, 20.0]),
    }
    problem: dict[str, Any] = {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": draw.choice(MODELS), "workloads": [workload]}],
        "market": {"offers": {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": offers}},
        "solver": {"alternatives": False, "time_limit_s": 20},
    }
    if survives:
        problem["resilience"] = {"survive": "provider", "load_fraction": LOAD_FRACTION, "detection_s": DETECTION_S}
    return problem
