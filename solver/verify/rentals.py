"""Rentals against the market: does the offer exist, at that price, as often, beside the others on its machine?"""

from collections import defaultdict
from collections.abc import Iterator

from sutler.solver.market.pools import PIECE_SIZES
from sutler.solver.plan import Plan, Rental
from sutler.solver.problem import Offer, Problem
from sutler.solver.verify.numbers import same
from sutler.solver.verify.view import PlanView, offer_key, offers_by_key


def unknown_rentals(problem: Problem, plan: Plan) -> Iterator[str]:
    """Rentals of offers that the market does not have."""
    known = offers_by_key(problem)
    for index, rental in enumerate(plan.rentals):
        if offer_key(rental) not in known:
            held = "held " if rental.held else ""
            yield (
                f"rentals[{index}]: no {held}offer {rental.offer_id!r} of {rental.provider!r} on contract "
                f"{rental.contract!r}, expected one of the problem's offers"
            )


def wrong_rentals(view: PlanView) -> Iterator[str]:
    """Facts of a rental that differ from its offer's, and prices that do not add up."""
    for index, (rental, offer) in enumerate(zip(view.plan.rentals, view.offers, strict=True)):
        path = f"rentals[{index}]"
        for name in ("site", "gpu"):
            if getattr(rental, name) != getattr(offer, name):
                yield f"{path}.{name}: {getattr(rental, name)!r}, expected the offer's {getattr(offer, name)!r}"
        yield from _wrong_size(rental, offer, path)
        yield from _wrong_price(rental, offer, path)


def _wrong_size(rental: Rental, offer: Offer, path: str) -> Iterator[str]:
    if not offer.divisible and rental.gpus != offer.gpus:
        yield f"{path}.gpus: {rental.gpus}, expected all {offer.gpus} of an offer that is not divisible"
    if offer.divisible and (rental.gpus not in PIECE_SIZES or rental.gpus > offer.gpus):
        yield f"{path}.gpus: {rental.gpus}, expected one of {PIECE_SIZES} and at most the machine's {offer.gpus}"


def _wrong_price(rental: Rental, offer: Offer, path: str) -> Iterator[str]:
    expected = offer.price_usd_per_hour * rental.gpus / offer.gpus + rental.storage_usd_per_hour
    if not same(rental.price_usd_per_hour, expected):
        yield (
            f"{path}.price_usd_per_hour: {rental.price_usd_per_hour!r}, expected {expected!r} "
            f"({rental.gpus} of {offer.gpus} GPUs at {offer.price_usd_per_hour!r} and storage)"
        )


def oversupplied_machines(view: PlanView) -> Iterator[str]:
    """More rented than the market holds, by offer and by physical machine."""
    sizes: dict[int, list[int]] = defaultdict(list)
    index_of = offers_by_key(view.problem)
    for rental in view.plan.rentals:
        offer_index = index_of[offer_key(rental)]
        sizes[offer_index].extend([rental.gpus] * rental.count)
    for offer_index, rented in sizes.items():
        yield from _oversupplied_offer(view.problem.offers[offer_index], rented)
    yield from _overlapping_slices(view.problem, sizes)


def _oversupplied_offer(offer: Offer, rented: list[int]) -> Iterator[str]:
    machines = len(rented) if not offer.divisible else _machines_for(rented, offer.gpus)
    if machines > offer.available:
        yield (
            f"rentals of offer {offer.offer_id!r} of {offer.provider!r}: {rented} GPUs need {machines} machines, "
            f"expected at most the {offer.available} available"
        )


def _machines_for(slices: list[int], gpus: int) -> int:
    """Machines that hold the slices, first fit decreasing: exact, since the sizes divide each other."""
    free: list[int] = []
    for size in sorted(slices, reverse=True):
        position = next((i for i, room in enumerate(free) if room >= size), None)
        if position is None:
            free.append(gpus - size)
        else:
            free[position] -= size
    return len(free)


def _overlapping_slices(problem: Problem, sizes: dict[int, list[int]]) -> Iterator[str]:
    on_machine: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, offer in enumerate(problem.offers):
        if offer.machine_id is not None:
            on_machine[offer.provider, offer.machine_id].append(index)
    for (provider, machine), members in on_machine.items():
        rented = [index for index in members if index in sizes]
        path = f"rentals on machine {machine!r} of {provider!r}"
        gpus = sum(sum(sizes[index]) for index in rented)
        limit = _gpus_of_machine([problem.offers[index] for index in members])
        if gpus > limit:
            yield f"{path}: {gpus} GPUs, expected at most the {limit} that can be rented there"
        yield from _shared_cards([problem.offers[index] for index in rented], path)


def _shared_cards(rented: list[Offer], path: str) -> Iterator[str]:
    """Whole offers that name a common card exclude each other; a divisible one leaves open which cards it gives."""
    taken: dict[int, Offer] = {}
    for offer in rented:
        for card in () if offer.divisible else offer.gpu_ids or ():
            if card in taken:
                both = [taken[card].offer_id, offer.offer_id]
                yield f"{path}: card {card} is rented through offers {both}, expected at most one of them"
            taken[card] = offer


def _gpus_of_machine(offers: list[Offer]) -> int:
    """What is stated; without it the union of the cards if all offers name theirs, else the largest offer.

    Worked out here once more: what the supply gets wrong must not pass.
    """
    stated = [offer.machine_gpus for offer in offers if offer.machine_gpus is not None]
    if stated:
        return min(stated)
    if all(offer.gpu_ids is not None for offer in offers):
        return len({card for offer in offers for card in offer.gpu_ids or ()})
    return max(offer.gpus for offer in offers)
