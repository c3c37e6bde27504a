"""What rentals cost on average, with the machines that start in the place of those that are taken away.

Flow: describe.py adds up a fleet, replanning what runs, spares.py what a budget leaves -> counted_usd_per_hour
(here).
"""

from collections.abc import Iterable

from sutler.solver.plan import Rental
from sutler.solver.problem import Interruptions, Problem


def counted_usd_per_hour(problem: Problem, rentals: Iterable[Rental]) -> float:
    """What rentals count for: their cost, where interruptions count the expected one. Storage is billed once."""
    return sum(counted_price(problem, rental) * rental.count for rental in rentals)


def counted_price(problem: Problem, rental: Rental) -> float:
    """USD per hour of one machine of a rental."""
    starting = problem.starting_fraction(rental)
    return rental.price_usd_per_hour + starting * (rental.price_usd_per_hour - rental.storage_usd_per_hour)


def interruptions_of(problem: Problem, rentals: Iterable[Rental]) -> tuple[Interruptions, ...]:
    """How often machines of these kinds are taken away, each rate once."""
    found = (problem.interruptions_of(rental) for rental in rentals)
    return tuple(dict.fromkeys(rate for rate in found if rate is not None))
