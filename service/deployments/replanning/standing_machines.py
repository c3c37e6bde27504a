"""What of the plan stands: machines that are held, and machines that are wished for and still for rent.

A machine of the plan that is not held and not for rent is missing: *lost* if it was held before, *gone* if it never
was, *scarce* if some of its kind are left. A provider that is silent makes nothing missing: its offers are old, not
gone. Nor does one poll that lacks them, and where nobody has ever reported what is rented they may be running: that
they are not listed any more is what renting them looks like.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import OfferKey, Settled, key_of
from sutler.solver.plan import Plan, Rental
from sutler.solver.problem import Offer
from sutler.solver.replanning import Holding, HoldingKey, held_offer, holding_key, holdings_of

MissingKind = Literal["lost", "gone", "scarce"]


@dataclass(frozen=True, slots=True)
class Missing:
    """`count` machines of the plan's `of` that are neither held nor for rent.

    Those that were lost count also where `again` of them are for rent again.
    """

    kind: MissingKind
    key: HoldingKey
    gpu: str
    count: int
    of: int
    again: int = 0


@dataclass(frozen=True, slots=True)
class Dearer:
    """Machines that are wished for and have cost more than planned for as long as a change must hold."""

    key: HoldingKey
    planned_usd_per_hour: float
    now_usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Storage:
    """What the plan says each machine of a kind needs, and what that costs where it is not rented yet."""

    gb: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class Assessed:
    """What stands and what does not.

    `standing` is what can be counted on, in the plan or not; `wished` is not rented yet, at today's price.
    `paid_usd_per_hour` is for each machine that is held. `ghosts`: offers that are not believed. `stated`: offers of
    machines that the problem states, none of which is one certain machine. `unseen`: what of `standing` is neither
    held nor for rent, and is not known to be lost.
    """

    standing: tuple[Holding, ...]
    wished: Mapping[HoldingKey, Holding]
    missing: tuple[Missing, ...]
    dearer: tuple[Dearer, ...]
    ghosts: frozenset[OfferKey] = frozenset()
    paid_usd_per_hour: Mapping[HoldingKey, float] = field(default_factory=dict)
    storage: Mapping[HoldingKey, Storage] = field(default_factory=dict)
    stated: frozenset[OfferKey] = frozenset()
    unseen: tuple[Missing, ...] = ()

    def is_single(self, offer: Offer) -> bool:
        """Whether it is one certain machine, not one of many alike."""
        return _is_single(offer, self.stated)


def assess(
    plan: Plan,
    offers: Sequence[Offer],
    *,
    holdings: Sequence[HoldingDocument] | None,
    settled: Mapping[OfferKey, Settled] | None,
    silent_providers: Iterable[str],
    held_before: Mapping[HoldingKey, int],
    doubted: Collection[OfferKey] = (),
    is_carried_out: bool = False,
    stated: Collection[OfferKey] = (),
    doubtful: Collection[HoldingKey] = (),
    avoided: Collection[OfferKey] = (),
    held_only: bool = False,
) -> Assessed:
    """The machines of a plan against what is held and what is for rent.

    `doubted`: offers that were not seen since what is held was reported; a single machine that was lost is not
    believed to be for rent again before that. `is_carried_out`: the plan is new, and machines of it that leave the
    market are those that are being rented for it. `doubtful`: machines that count as there although they are neither
    held nor for rent. `avoided`: offers of places that failed, where nothing that was lost is rented again.
    `held_only`: what is not held is not counted on.
    """
    held = {holding.key: holding for holding in reported(holdings or ())}
    market = {key_of(offer): offer for offer in offers}
    silent = frozenset(silent_providers)
    taken: dict[OfferKey, int] = defaultdict(int)
    storage = _storage(plan.rentals)
    to_rent = {holding.key: holding for holding in holdings_of([r for r in plan.rentals if not r.held])}
    standing, wished, missing, dearer, unseen = [], {}, [], [], []
    in_plan = holdings_of(plan.rentals)
    if held_only:
        in_plan = tuple(replace(one, count=min(one.count, held[one.key].count)) for one in in_plan if one.key in held)
    for planned in in_plan:
        have = min(planned.count, held[planned.key].count) if planned.key in held else 0
        offer = market.get(planned.key[:3])
        wanted = planned.count - have
        lost = min(wanted, max(0, held_before.get(planned.key, 0) - have))
        in_silence = wanted - lost  # what was reported is known better than what an old offer says
        still = in_silence if planned.key[0] in silent else min(wanted, _for_rent(offer, planned.key, taken))
        if planned.key in doubtful and not lost and still < wanted:
            unseen.append(
                Missing("scarce" if still else "gone", planned.key, planned.gpu, wanted - still, planned.count)
            )
            still = wanted
        if is_carried_out and not lost:
            still = wanted
        is_ghost = planned.key[:3] in doubted and (offer is None or _is_single(offer, stated))
        if lost and (is_ghost or planned.key[:3] in avoided):
            still = min(still, wanted - lost)
        past = None if settled is None else settled.get(planned.key[:3])
        expected = to_rent.get(planned.key, planned)
        price = _price(expected, offer, past, storage[planned.key].usd_per_hour)
        if still:
            taken[planned.key[:3]] += still * planned.key[3]
            asked = price if offer is None else _asked(planned.key, offer, storage[planned.key].usd_per_hour)
            wished[planned.key] = Holding(planned.key, planned.gpu, still, asked)
            if price > expected.price_usd_per_hour * (1 + 1e-6):
                dearer.append(Dearer(planned.key, expected.price_usd_per_hour, price))
        if lost:
            again = max(0, still - (wanted - lost))
            missing.append(Missing("lost", planned.key, planned.gpu, lost, planned.count, again))
        elif wanted - still:
            kind: MissingKind = "scarce" if still else "gone"
            missing.append(Missing(kind, planned.key, planned.gpu, wanted - still, planned.count))
        here = held.get(planned.key, Holding(planned.key, planned.gpu, 0, price))
        if total := here.count + still:
            mean = (here.price_usd_per_hour * here.count + price * still) / total
            standing.append(Holding(planned.key, planned.gpu, total, mean))
    ghosts = {one.key[:3] for one in missing if one.kind == "lost" and one.again < one.count}
    standing += [holding for key, holding in held.items() if key not in {planned.key for planned in in_plan}]
    prices = {key: holding.price_usd_per_hour for key, holding in held.items()}
    believed_not = frozenset(ghosts & set(doubted))
    return Assessed(
        tuple(standing),
        wished,
        tuple(missing),
        tuple(dearer),
        believed_not,
        prices,
        storage,
        frozenset(stated),
        tuple(unseen),
    )


def _storage(rentals: Sequence[Rental]) -> dict[HoldingKey, Storage]:
    found = {}
    for key in {holding_key(rental) for rental in rentals}:
        alike = [rental for rental in rentals if holding_key(rental) == key]
        new = [rental for rental in alike if not rental.held]
        usd = sum(r.storage_usd_per_hour * r.count for r in new) / max(1, sum(r.count for r in new))
        found[key] = Storage(max(rental.storage_gb for rental in alike), usd)
    return found


def supply(assessed: Assessed, offers: Sequence[Offer], *, known: Mapping[OfferKey, Offer]) -> tuple[Offer, ...]:
    """What stands, as held offers, and what else is for rent. `known`: offers as they were when they were rented."""
    by_key = {key_of(offer): offer for offer in offers}
    held = [held_offer(h, by_key.get(h.key[:3]) or known.get(h.key[:3])) for h in assessed.standing]
    believed = [offer for offer in offers if key_of(offer) not in assessed.ghosts or not assessed.is_single(offer)]
    wished = {key: holding.count for key, holding in assessed.wished.items()}
    return (*held, *_without(believed, {**wished, **_held_machines(assessed, by_key)}))


def _held_machines(assessed: Assessed, for_rent: Mapping[Any, Offer]) -> dict[HoldingKey, int]:
    """Certain machines that are held and still listed: until the next poll, a market does not know of a rental."""
    return {
        holding.key: holding.count
        for holding in assessed.standing
        if (offer := for_rent.get(holding.key[:3])) is not None and assessed.is_single(offer)
    }


def settled_offers(
    offers: Iterable[Offer], settled: Mapping[OfferKey, Settled] | None, stated: Collection[OfferKey] = ()
) -> tuple[Offer, ...]:
    """Offers at the highest price and the least availability that they have had; what is new does not count yet.

    What the problem states has no history, and holds as stated.
    """
    if settled is None:
        return tuple(offers)
    found = []
    for offer in offers:
        past = settled.get(key_of(offer))
        if past is not None:
            price = max(offer.price_usd_per_hour, past.high_usd_per_gpu_hour * offer.gpus)
            found.append(replace(offer, price_usd_per_hour=price, available=min(offer.available, past.available)))
        elif key_of(offer) in stated:
            found.append(offer)
    return tuple(found)


def reported(holdings: Sequence[HoldingDocument]) -> tuple[Holding, ...]:
    """Holdings as the solver knows them: one per kind of machine, equal machines at two prices at their mean."""
    rentals = [
        Rental(h.offer_id, h.provider, None, h.gpu, h.gpus, h.count, h.price_usd_per_hour, h.contract)
        for h in holdings
    ]
    return holdings_of(rentals)


def _is_single(offer: Offer, stated: Collection[OfferKey]) -> bool:
    if key_of(offer) in stated:
        return False
    return not offer.divisible and (offer.machine_id is not None or offer.available <= 1)


def _for_rent(offer: Offer | None, key: HoldingKey, taken: Mapping[OfferKey, int]) -> int:
    """Machines of this kind that the market has beside what is counted on already."""
    if offer is None or (offer.gpus != key[3] and not offer.divisible):
        return 0
    if not offer.divisible:
        room = offer.gpus if offer.machine_gpus is None else offer.machine_gpus
        return max(0, offer.available - taken[key[:3]] // key[3]) if room >= key[3] else 0
    return max(0, offer.available * (offer.gpus // key[3]) - -(-taken[key[:3]] // key[3]))


def _price(planned: Holding, offer: Offer | None, past: Settled | None, storage_usd_per_hour: float) -> float:
    """The price of a machine that is not rented yet: the lowest of late, so that a swing is no drift."""
    if offer is None:
        return planned.price_usd_per_hour
    now = _asked(planned.key, offer, storage_usd_per_hour)
    low = now if past is None else min(now, past.low_usd_per_gpu_hour * planned.key[3] + storage_usd_per_hour)
    return min(planned.price_usd_per_hour, now) if low <= planned.price_usd_per_hour else low


def _asked(key: HoldingKey, offer: Offer, storage_usd_per_hour: float) -> float:
    """Today's price of one such machine."""
    return offer.price_usd_per_hour * key[3] / offer.gpus + storage_usd_per_hour


def _without(offers: Iterable[Offer], wished: Mapping[HoldingKey, int]) -> Iterable[Offer]:
    """The market without the machines that are counted on; slices that share their cards go with them."""
    gpus: dict[OfferKey, int] = defaultdict(int)
    for key, count in wished.items():
        gpus[key[:3]] += count * key[3]
    offers = tuple(offers)
    machines: dict[tuple[str, str], int] = defaultdict(int)
    cards: dict[tuple[str, str], set[int]] = defaultdict(set)
    for offer in offers:
        wanted = gpus.get(key_of(offer), 0)
        if wanted and offer.machine_id is not None:
            machines[offer.provider, offer.machine_id] += wanted
            cards[offer.provider, offer.machine_id].update(offer.gpu_ids or ())
    for offer in offers:
        taken = gpus.get(key_of(offer), 0)
        machine = (offer.provider, offer.machine_id or "")
        if offer.machine_id is not None and machine in machines:
            left = (offer.machine_gpus or offer.gpus) - machines[machine]
            if left > 0 and not taken and cards[machine].isdisjoint(offer.gpu_ids or ()):
                yield replace(offer, machine_gpus=left)
        elif taken:
            left = (offer.available * offer.gpus - taken) // offer.gpus
            if left > 0:
                yield replace(offer, available=left)
        else:
            yield offer
