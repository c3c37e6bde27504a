"""Markets of hundreds of single offers on several providers, for plans that are to survive."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.instances import single_offers
from benchmarks.robust import at_least_cost
from sutler.solver.problem import Problem

PROVIDERS: Final = 5
REGIONS: Final = ("eu", "us")
LOAD_FRACTION: Final = 0.8


def problems() -> Iterator[tuple[str, Problem]]:
    """Hundreds of single offers of two models on several providers: the most for a budget, and the least cost."""
    for slices in (False, True):
        for seed in (0, 1):
            name = f"500 {'slices' if slices else 'singles'}, seed {seed}"
            problem = with_places(single_offers(seed=seed, budget_usd_per_hour=15.0, slices=slices), seed)
            yield f"{name}, 15 $/h", problem
            yield f"{name}, 40 req/s", with_places(at_least_cost(problem), seed)


def with_places(problem: Problem, seed: int) -> Problem:
    """The offers on several providers and regions, those of a machine together."""
    draw, options = np.random.default_rng(seed), replace(problem.options, alternatives=False, time_limit_s=30.0)
    homes: dict[str, tuple[str, str]] = {}
    offers = []
    for offer in problem.offers:
        machine = offer.machine_id or offer.offer_id
        if machine not in homes:
            homes[machine] = f"p{draw.integers(PROVIDERS)}", REGIONS[draw.integers(len(REGIONS))]
        provider, region = homes[machine]
        offers.append(replace(offer, provider=provider, region=region))
    return replace(problem, offers=tuple(offers), options=options)
