"""Random problems whose clouds rent any number of cards, or whole machines one by one: what the tree searches."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from sutler.solver import solve, tree
from sutler.solver.plan import Plan
from sutler.solver.problem import LossKind, ObjectiveKind, Offer, Problem, Resilience, SolveOptions
from tests.builders import random_estimated_problem, random_problem, random_roles_problem

GAP: Final = 1e-6
SURVIVED: Final[tuple[LossKind, ...]] = ("provider", "place", "interruptible")


def _surviving(seed: int, objective: ObjectiveKind) -> Problem:
    """`random_problem`, of which the loss of a cloud or a place leaves some."""
    draw = Random(seed + 3)
    kinds = tuple(draw.sample(SURVIVED, draw.randint(1, 2)))
    return replace(
        random_problem(seed, objective),
        resilience=Resilience(kinds, draw.choice([0.3, 0.5, 0.7])),
        budget_usd_per_hour=None,
    )


FAMILIES: Final[dict[str, Callable[[int, ObjectiveKind], Problem]]] = {
    "measured": random_problem,
    "roles": random_roles_problem,
    "estimated": random_estimated_problem,  # whose limits set ceilings of the load
    "survival": _surviving,
}


def divisible(problem: Problem, seed: int) -> Problem:
    """The problem where every cloud rents any number of cards of machines of eight, several of each."""
    draw = Random(seed)

    def of(number: int, offer: Offer) -> Offer:
        per_card = offer.price_usd_per_hour / offer.gpus
        return replace(
            offer,
            offer_id=f"d{number}",
            gpus=8,
            available=draw.randint(1, 3),
            price_usd_per_hour=round(8 * per_card, 3),
            divisible=True,
            machine_id=None,
            machine_gpus=None,
            gpu_ids=None,
            site=offer.site or f"{offer.provider}/s",
            inter_machine_gb_per_s=offer.inter_machine_gb_per_s or 12.5,
        )

    offers = tuple(of(number, offer) for number, offer in enumerate(problem.offers))
    return to_the_gap(replace(problem, offers=offers))


def to_the_gap(problem: Problem) -> Problem:
    """The problem with time to prove its optimum."""
    options = SolveOptions(relative_gap=GAP, tolerance_fraction=GAP, alternatives=False, time_limit_s=600.0)
    return replace(problem, options=options)


def by_both(problem: Problem) -> tuple[Plan, Plan]:
    """By the tree, and as where it was not compiled."""
    plans = []
    for is_built in (True, False):
        before, tree.IS_BUILT = tree.IS_BUILT, is_built
        try:
            plans.append(solve(problem))
        finally:
            tree.IS_BUILT = before
    return plans[0], plans[1]
