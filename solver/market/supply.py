"""What can be rented: offers as classes with counts, and the rows that tie overlapping offers together.

An offer class is a price step of its pool's supply curve: `count` machines (or slices) of `gpus` GPUs at one
price. Three refinements keep it exact:

- overlapping slices of one machine share its GPUs and cards (`Coupling` rows on the class counts); where the
  slices are complete and aligned, equal ones merge and a single row is left;
- a divisible offer becomes slices of 1, 2, 4 and 8 GPUs, with one row per size;
- a pool with one price per GPU and nothing tied together needs no rental variables at all: its GPUs are paid
  for by the replicas that use them (`Supply.gpu_price_usd_per_hour`).

Prices are what machines count for: where interruptions do, with what starts in the place of those taken away.
Counts are clamped to what the budget and the limits could ever pay for before anything is solved: with the
counts of the market left in, the relaxation rents fractions of machines that no plan could afford.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from math import isfinite
from typing import TypeVar

from sutler.solver.arrays import IntArray
from sutler.solver.market.machines import Machine, machines_apart
from sutler.solver.market.pools import PIECE_SIZES, Pool, group_offers
from sutler.solver.problem import Offer, Problem

Gpus = TypeVar("Gpus", int, IntArray)


@dataclass(frozen=True, slots=True)
class OfferClass:
    """`count` machines of `gpus` GPUs in a pool. `offers` says which: (offer index, how many), in filling order.

    `copy`: which of the offer's machines it is, in a pool that is a single machine.
    """

    pool: int
    gpus: int
    price_usd_per_hour: float
    count: int
    provider: str
    offers: tuple[tuple[int, int], ...]
    held: bool = False
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Coupling:
    """sum(coefficient * rented machines of class) <= limit."""

    terms: tuple[tuple[int, int], ...]  # (class index, coefficient)
    limit: int


@dataclass(frozen=True, slots=True)
class Supply:
    """The market as the polytope sees it.

    `gpu_price_usd_per_hour` holds the pools without rental variables: pool index -> price of one GPU. Their room
    for pieces of each size, in GPUs, is in `room_gpus`: (pool, size) -> GPUs. `pool_of_machine` has the machines that
    are pools of their own: (offer index, which of its machines) -> pool; they are the first of their offers.
    """

    pools: tuple[Pool, ...]
    pool_of_offer: tuple[int, ...]
    classes: tuple[OfferClass, ...]
    couplings: tuple[Coupling, ...]
    gpu_price_usd_per_hour: Mapping[int, float]
    room_gpus: Mapping[tuple[int, int], int]
    pool_of_machine: Mapping[Machine, int] = field(default_factory=dict)

    def pool_at(self, offer: int, copy: int) -> int:
        """The pool of one of an offer's machines."""
        return self.pool_of_machine.get((offer, copy), self.pool_of_offer[offer])

    def kind_of(self, offer_class: OfferClass) -> int:
        """The pool of all machines that are like those of a class."""
        return self.pool_of_offer[offer_class.offers[0][0]]

    def most_gpus(self, pool: int, size: int) -> int:
        """GPUs of a pool that pieces of at least `size` can ever use, ignoring what ties offers together; of a size
        that is none of PIECE_SIZES, on machines of just so many."""
        if pool in self.gpu_price_usd_per_hour:
            return self.room_gpus.get((pool, size), 0)
        return sum(room_of(size, c.gpus) * c.count for c in self.classes if c.pool == pool)

    def cheapest_gpu_usd_per_hour(self) -> list[float]:
        """[pools] A lower bound on what one GPU of each pool costs; inf where there is none."""
        prices = [self.gpu_price_usd_per_hour.get(pool, float("inf")) for pool in range(len(self.pools))]
        for c in self.classes:
            prices[c.pool] = min(prices[c.pool], c.price_usd_per_hour / c.gpus)
        return prices

    def least_usd_per_gpu_hour(self) -> list[float]:
        """[pools] The lower bound on what one GPU costs; 0 where there is none."""
        return [price if isfinite(price) else 0.0 for price in self.cheapest_gpu_usd_per_hour()]


def room_of(size: int, machine_gpus: Gpus) -> Gpus:
    """GPUs of one machine, or of each of several, that pieces of `size` can use: what is none of PIECE_SIZES takes a
    whole machine."""
    return size * (machine_gpus // size) if size in PIECE_SIZES else size * (machine_gpus == size)


def build_supply(problem: Problem) -> Supply:
    """Classes, couplings and direct pools of the problem's market, clamped to budget and limits."""
    problem = replace(problem, offers=tuple(_counted(problem, _rentable(offer)) for offer in problem.offers))
    pools, pool_of_offer = group_offers(problem)
    offers_of_pool: dict[int, list[int]] = defaultdict(list)
    for index, pool in enumerate(pool_of_offer):
        offers_of_pool[pool].append(index)
    machines = _shared_machines(problem.offers)
    tied = set(chain.from_iterable(machines))

    apart = machines_apart(problem, pools, pool_of_offer)
    gpu_price: dict[int, float] = {}
    room: dict[tuple[int, int], int] = {}
    couplings: list[Coupling] = []
    classes = [_own_class(problem, machine, len(pools) + number) for number, machine in enumerate(apart)]
    class_of_offer = {index: number for number, (index, _) in enumerate(apart) if index in tied}
    class_of_offer = {i: k for i, k in class_of_offer.items() if not problem.offers[i].divisible}
    problem = _without_machines(problem, apart)
    for pool, members in offers_of_pool.items():
        offers = [problem.offers[i] for i in members]
        is_free = tied.isdisjoint(members) and {i for i, _ in apart}.isdisjoint(members)
        is_free &= not problem.limits.max_gpus_per_provider and problem.limits.max_machines_per_host is None
        if _is_direct(offers) and is_free:
            price = offers[0].price_usd_per_hour / offers[0].gpus
            gpu_price[pool] = price
            for size in PIECE_SIZES:
                gpus = sum(room_of(size, offer.gpus) * offer.available for offer in offers)
                room[pool, size] = min(gpus, size * (_most_gpus(problem, offers[0], price) // size))
            continue
        loose = []
        for index in members:
            offer = problem.offers[index]
            if offer.divisible and offer.gpus > 1:
                _add_divisible(problem, index, pool, classes, couplings)
            elif index in class_of_offer:
                continue
            elif index in tied:
                class_of_offer[index] = len(classes)
                count = min(offer.available, _most_machines(problem, offer, offer.gpus))
                filling = ((index, offer.available),)
                classes.append(OfferClass(pool, offer.gpus, offer.price_usd_per_hour, count, offer.provider, filling))
            else:
                loose.append(index)
        classes.extend(_supply_curve(problem, loose, pool))
    for machine in machines:
        _tie_machine(machine, problem.offers, classes, couplings, class_of_offer)
    own = {machine: len(pools) + number for number, machine in enumerate(apart)}
    pools = (*pools, *(_own_pool(pools[pool_of_offer[i]], problem.offers[i], copy) for i, copy in apart))
    return _without_empty_classes(
        Supply(pools, pool_of_offer, tuple(classes), tuple(couplings), gpu_price, room, own)
    )


def _own_pool(kind: Pool, offer: Offer, copy: int) -> Pool:
    held = "held" if offer.held else ""
    return replace(kind, machine=f"{offer.provider}:{offer.offer_id}#{copy}{held}", largest_machine=offer.gpus)


def _own_class(problem: Problem, machine: Machine, pool: int) -> OfferClass:
    index, copy = machine
    offer = problem.offers[index]
    count, price = min(1, _most_machines(problem, offer, offer.gpus)), offer.price_usd_per_hour
    return OfferClass(pool, offer.gpus, price, count, offer.provider, ((index, 1),), offer.held, copy)


def _without_machines(problem: Problem, apart: Iterable[Machine]) -> Problem:
    """The market without machines that are pools of their own; the slices of divisible ones are tied to them."""
    taken = Counter(index for index, _ in apart if not problem.offers[index].divisible)
    offers = list(problem.offers)
    for index, count in taken.items():
        offers[index] = replace(offers[index], available=offers[index].available - count)
    return replace(problem, offers=tuple(offers))


def _rentable(offer: Offer) -> Offer:
    """A slice larger than what its machine can rent out now is not available."""
    larger = offer.machine_gpus is not None and offer.gpus > offer.machine_gpus and not offer.divisible
    return replace(offer, available=0) if larger else offer


def _counted(problem: Problem, offer: Offer) -> Offer:
    """The offer at what it counts for."""
    starting = problem.starting_fraction(offer)
    return replace(offer, price_usd_per_hour=offer.price_usd_per_hour * (1 + starting)) if starting else offer


def _most_gpus(problem: Problem, offer: Offer, price_per_gpu: float) -> int:
    """How many GPUs the budget and the limits could pay for, whatever else is rented."""
    limits = problem.limits
    caps = [float(limits.max_gpus.get(offer.gpu, 2**31))]
    if problem.budget_usd_per_hour is not None and price_per_gpu > 0:
        caps.append(problem.budget_usd_per_hour / price_per_gpu * (1 + 1e-9))
    tdp = (problem.gpus[offer.gpu].tdp_watts or 0.0) * min((1.0, *problem.search.power_caps_fraction))
    if limits.max_power_watts is not None and tdp:
        caps.append(limits.max_power_watts / tdp * (1 + 1e-9))
    if offer.provider in limits.max_gpus_per_provider:
        caps.append(limits.max_gpus_per_provider[offer.provider])
    return int(min(caps))


def _most_machines(problem: Problem, offer: Offer, gpus: int) -> int:
    return _most_gpus(problem, offer, offer.price_usd_per_hour / offer.gpus) // gpus


def _is_direct(offers: list[Offer]) -> bool:
    """Pools that the replicas can pay for themselves; what is held must be told apart from what is for rent."""
    if any(offer.held for offer in offers):
        return False
    prices = [offer.price_usd_per_hour / offer.gpus for offer in offers]
    return all(offer.divisible or offer.gpus == 1 for offer in offers) and max(prices) - min(prices) <= 1e-9 * max(
        prices
    )


def _supply_curve(problem: Problem, members: Iterable[int], pool: int) -> list[OfferClass]:
    """Independent offers: equal (GPUs, price, provider) merge, and what lies beyond the budget is dropped.

    A machine is rented only when all cheaper ones of its kind are: the curve is cut where their sum passes the
    budget. What is held is a kind of its own: it may be kept although others have become cheaper.
    """
    by_host, limited = problem.limits.max_machines_per_host is not None, bool(problem.limits.max_gpus_per_provider)
    merged: dict[tuple[bool, int, float, str, str], list[int]] = defaultdict(list)
    for index in members:
        offer = problem.offers[index]
        host = (offer.host or "") if by_host else ""
        merged[offer.held, offer.gpus, offer.price_usd_per_hour, offer.provider, host].append(index)
    spent: dict[tuple[bool, int, str, str], float] = defaultdict(float)
    budget = float("inf") if problem.budget_usd_per_hour is None else problem.budget_usd_per_hour * (1 + 1e-9)
    curve = []
    for (held, gpus, price, provider, host), indices in sorted(merged.items()):
        available = sum(problem.offers[i].available for i in indices)
        kind = (held, gpus, provider if limited or by_host else "", host)
        left = budget - spent[kind]
        affordable = available if price == 0 or left == float("inf") else int(max(0.0, left) / price)
        count = min(available, affordable, _most_machines(problem, problem.offers[indices[0]], gpus))
        spent[kind] += price * available
        filling = tuple((i, problem.offers[i].available) for i in indices)
        curve.append(OfferClass(pool, gpus, price, count, provider, filling, held))
    return curve


def _add_divisible(
    problem: Problem, index: int, pool: int, classes: list[OfferClass], couplings: list[Coupling]
) -> None:
    """Slices of 1, 2, 4, 8 GPUs; for each size s, slices of at least s fit the s-aligned room of the machines."""
    offer, first = problem.offers[index], len(classes)
    whole = [k for k, c in enumerate(classes) if c.offers[0][0] == index]
    sizes = [size for size in PIECE_SIZES if size <= offer.gpus]
    for size in sizes:
        available = offer.available * (offer.gpus // size)
        count = min(available, _most_machines(problem, offer, size))
        price = offer.price_usd_per_hour * size / offer.gpus
        classes.append(OfferClass(pool, size, price, count, offer.provider, ((index, available),)))
    for position, size in enumerate(sizes):
        terms = tuple((first + larger, sizes[larger]) for larger in range(position, len(sizes)))
        terms += tuple((k, room_of(size, offer.gpus)) for k in whole)
        couplings.append(Coupling(terms, room_of(size, offer.gpus) * offer.available))


def _shared_machines(offers: tuple[Offer, ...]) -> list[list[int]]:
    """Offers on one physical machine that limit each other, or that it limits: groups of offer indices."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, offer in enumerate(offers):
        if offer.machine_id is not None:
            groups[offer.provider, offer.machine_id].append(index)
    return [
        members
        for members in groups.values()
        if len(members) > 1 or machine_gpus([offers[members[0]]]) < _asked_gpus(offers[members[0]])
    ]


def _asked_gpus(offer: Offer) -> int:
    """The GPUs of all that is said to be for rent; of divisible machines each is one of its own."""
    return offer.gpus * (1 if offer.divisible else offer.available)


def machine_gpus(offers: Iterable[Offer]) -> int:
    """GPUs of one machine that its offers can use together: what is stated; without it the union of the cards if all
    offers name theirs, else the largest offer."""
    offers = list(offers)
    stated = [offer.machine_gpus for offer in offers if offer.machine_gpus is not None]
    if stated:
        return min(stated)
    if all(offer.gpu_ids is not None for offer in offers):
        return len({card for offer in offers for card in offer.gpu_ids or ()})
    return max(offer.gpus for offer in offers)


def _tie_machine(
    members: list[int],
    offers: tuple[Offer, ...],
    classes: list[OfferClass],
    couplings: list[Coupling],
    class_of_offer: dict[int, int],
) -> None:
    limit = machine_gpus(offers[i] for i in members)
    slices = [i for i in members if i in class_of_offer]
    divisible = {i for i in members if i not in class_of_offer}
    if not divisible and _aligned([offers[i] for i in slices], [classes[class_of_offer[i]].pool for i in slices]):
        slices = _merge_equal_slices(slices, classes, class_of_offer)
        couplings.append(Coupling(tuple((class_of_offer[i], offers[i].gpus) for i in slices), limit))
        return
    terms = [(class_of_offer[i], offers[i].gpus) for i in slices]
    if divisible:
        terms += [(k, c.gpus) for k, c in enumerate(classes) if c.offers[0][0] in divisible]
    couplings.append(Coupling(tuple(terms), limit))
    rows = {
        tuple((class_of_offer[i], 1) for i in slices if card in (offers[i].gpu_ids or ()))
        for card in {card for i in slices for card in offers[i].gpu_ids or ()}
    }
    couplings.extend(Coupling(row, 1) for row in sorted(rows) if len(row) > 1)


def _aligned(offers: list[Offer], pools: list[int]) -> bool:
    """The slices of every size partition the same cards, lie inside those of the next size and are alike.

    Then any counts that fit the machine can be cut from it, since the sizes divide each other.
    """
    by_size: dict[int, list[frozenset[int]]] = defaultdict(list)
    for offer in offers:
        if offer.gpu_ids is None or offer.gpus not in PIECE_SIZES:
            return False
        by_size[offer.gpus].append(frozenset(offer.gpu_ids))
    cards = frozenset(card for blocks in by_size.values() for block in blocks for card in block)
    sizes = sorted(by_size)
    complete = all(
        sum(len(b) for b in by_size[s]) == len(cards) and frozenset().union(*by_size[s]) == cards for s in sizes
    )
    nested = all(
        any(block <= larger for larger in by_size[above])
        for size, above in pairwise(sizes)
        for block in by_size[size]
    )
    kinds = {(offer.gpus, offer.price_usd_per_hour, pool) for offer, pool in zip(offers, pools, strict=True)}
    uniform = len(kinds) == len(sizes)
    return complete and nested and uniform


def _merge_equal_slices(slices: list[int], classes: list[OfferClass], class_of_offer: dict[int, int]) -> list[int]:
    """Slices of one size at one price on one contract are interchangeable: keep one class for them."""
    kept: dict[tuple[int, float, int], int] = {}
    for index in slices:
        own = classes[class_of_offer[index]]
        key = (own.gpus, own.price_usd_per_hour, own.pool)
        if key not in kept:
            kept[key] = index
            continue
        target = class_of_offer[kept[key]]
        first = classes[target]
        classes[target] = replace(first, count=first.count + own.count, offers=first.offers + own.offers)
        classes[class_of_offer[index]] = replace(own, count=0)
    return list(kept.values())


def _without_empty_classes(supply: Supply) -> Supply:
    """Drop classes that nothing can be rented of, and the couplings that never bind without them."""
    kept = [k for k, c in enumerate(supply.classes) if c.count > 0]
    renumbered = {k: new for new, k in enumerate(kept)}
    couplings = []
    for coupling in supply.couplings:
        terms = tuple((renumbered[k], factor) for k, factor in coupling.terms if k in renumbered)
        if sum(factor * supply.classes[kept[k]].count for k, factor in terms) > coupling.limit:
            couplings.append(Coupling(terms, coupling.limit))
    return replace(supply, classes=tuple(supply.classes[k] for k in kept), couplings=tuple(couplings))
