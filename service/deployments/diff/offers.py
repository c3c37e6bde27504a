"""What happens to the machines of each offer, by counts: kept, started, stopped, gone, held without a plan."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sutler.service.deployments.diff.matching import KeyedFleet, Matching, matched
from sutler.service.deployments.diff.stable_ids import offer_key
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import RentalDocument

Prices = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines of one offer: their keys in a plan (none for what is in no plan), and what each costs in USD/h."""

    keys: tuple[str, ...]
    prices: Prices


@dataclass(frozen=True, slots=True)
class OfferChange:
    """The machines of one offer. `kept` and `started` have keys of the later plan, the others of the earlier one.

    `paid` are the prices of the kept ones so far; `found` says how many of the kept are held but in no earlier plan.
    `gone` are not held; `unplanned` are held and in neither plan.
    """

    key: str
    offer: RentalDocument | HoldingDocument
    kept: Machines
    paid: Prices
    found: int
    started: Machines
    stopped: Machines
    gone: Machines
    unplanned: Machines


def offer_changes(
    before: KeyedFleet, after: KeyedFleet, held: Sequence[HoldingDocument] | None, *, of_running: bool
) -> tuple[Matching, list[OfferChange]]:
    """Returns what happens by offer, and which machines and engines stay.

    `held` None: exactly the earlier plan's machines are there.

    `of_running`: no more of an offer stay than the later plan says are held.
    """
    holdings = _prices_held(held or ())
    faces = {offer_key(holding): holding for holding in held or ()} | _faces(before) | _faces(after)
    there = {} if held is None else {offer: len(holdings.get(offer, ())) for offer in faces}
    if of_running:
        there = {offer: min(count, _said_to_be_held(after, offer)) for offer, count in there.items()}
    matching = matched(before, after, most=there)
    changes = [
        _change(
            offer,
            faces[offer],
            before,
            after,
            matching,
            held=None if held is None else holdings.get(offer, []),
            most=there.get(offer, len(after.machines)) if of_running else len(after.machines),
        )
        for offer in sorted(faces)
    ]
    return matching, changes


def _said_to_be_held(fleet: KeyedFleet, offer: str) -> int:
    return sum(fleet.machines[key].rental.held for key in fleet.offers.get(offer, ()))


def _prices_held(held: Iterable[HoldingDocument]) -> dict[str, list[float]]:
    prices: dict[str, list[float]] = defaultdict(list)
    for holding in held:
        prices[offer_key(holding)] += [holding.price_usd_per_hour] * holding.count
    return prices


def _faces(fleet: KeyedFleet) -> dict[str, RentalDocument | HoldingDocument]:
    return {offer: fleet.machines[keys[0]].rental for offer, keys in fleet.offers.items()}


def _change(
    offer: str,
    face: RentalDocument | HoldingDocument,
    before: KeyedFleet,
    after: KeyedFleet,
    matching: Matching,
    *,
    held: list[float] | None,
    most: int,
) -> OfferChange:
    mine, theirs = after.offers.get(offer, ()), before.offers.get(offer, ())
    pairs = {machine: matching.machines[machine] for machine in mine if machine in matching.machines}
    spare = _spare(held or [], [before.machines[key].rental.price_usd_per_hour for key in theirs])
    found = min(len(spare), len(mine) - len(pairs), max(0, most - len(pairs)))
    kept = (*pairs, *[key for key in mine if key not in pairs][:found])
    left = [key for key in theirs if key not in pairs.values()]
    lost = 0 if held is None else max(0, len(theirs) - len(held))
    kept_prices, started_prices = _split([after.machines[key].rental for key in mine], len(kept))
    return OfferChange(
        key=offer,
        offer=face,
        kept=Machines(kept, kept_prices),
        paid=tuple(sorted((*_prices(before, pairs.values()), *spare[:found]))),
        found=found,
        started=Machines(tuple(key for key in mine if key not in kept), started_prices),
        stopped=_machines(before, left[: len(left) - lost]),
        gone=_machines(before, left[len(left) - lost :]),
        unplanned=Machines((), tuple(spare[found:])),
    )


def _spare(held: list[float], planned: list[float]) -> list[float]:
    """The prices of those held beyond the earlier plan, the cheapest first; those that cost as planned are its."""
    rest, unmatched = sorted(held), []
    for price in sorted(planned):
        if price in rest:
            rest.remove(price)
        else:
            unmatched.append(price)
    return rest[: max(0, len(rest) - len(unmatched))]


def _split(rentals: Sequence[RentalDocument], kept: int) -> tuple[Prices, Prices]:
    """The prices of those that stay, then of the new ones: what is held, or cheaper, is what stays."""
    ordered = sorted(rentals, key=lambda rental: (not rental.held, rental.price_usd_per_hour))
    prices = tuple(rental.price_usd_per_hour for rental in ordered)
    return prices[:kept], prices[kept:]


def _machines(fleet: KeyedFleet, keys: Sequence[str]) -> Machines:
    return Machines(tuple(keys), _prices(fleet, keys))


def _prices(fleet: KeyedFleet, keys: Iterable[str]) -> Prices:
    return tuple(fleet.machines[key].rental.price_usd_per_hour for key in keys)
