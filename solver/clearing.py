"""Several problems on one market that is too small for all: which of them gets which machines.

Every problem keeps its own filters, limits and objective; what ties them are machines and money. This is Dantzig and
Wolfe's decomposition with fleets as columns:

    propose     each problem's best fleet, where machines that others want cost a surcharge
    choose      one fleet of each, so that all fit beside each other: a small program over the fleets proposed so far
    price       its duals are the next surcharges: what another machine, or another USD/h, would save in all

Who is left without a fleet proposes one from what the others leave. Where more is wanted than there is, higher
priorities choose first; within one, as many as can be are served, at the least cost in all. What was planned before
is among the proposals, and only what serves more or saves `LEAST_GAIN` moves anything; nobody loses its fleet unless
more are served.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.answer.packing import pack
from sutler.solver.errors import EngineError
from sutler.solver.methods import exact
from sutler.solver.polytope.linear import LinearProgram, solve_lp, solve_milp
from sutler.solver.polytope.objectives import LEAST_LAM, first_goal
from sutler.solver.polytope.preparation import enumerated, scaled_to_one
from sutler.solver.problem import Offer, Problem
from sutler.solver.progress import Clock, SecondsLeft

LEAST_GAIN: Final = 0.01  # of what all cost, chosen: for less, nobody's plan is changed
STAYS: Final = 0.002  # relative, chosen: of fleets that cost as much, what was planned before stays
MOST_ROUNDS: Final = 40  # chosen: twice as many as twenty problems took until nothing new was proposed
SMOOTHING: Final = 0.5  # of the last surcharges in the next ones, chosen: duals alone leap about
NEAR_ENOUGH: Final = 0.01  # of a bound on all, chosen: for less nothing more is proposed
FLEET_GAP: Final = 0.002  # of one proposal
LEAST_CHOICE_S: Final = 5.0  # chosen: a choice takes milliseconds, and is needed however late it is
LEAST_PRICE: Final = 1e-6  # $/h
SLACK: Final = 1e-6

OfferKey = tuple[str, str, str]
"""(provider, offer_id, contract)."""
Lot = tuple[str, ...]
"""What is shared: an offer by its key, a machine by provider and id, or a purse by its name."""


@dataclass(frozen=True, slots=True)
class Machines:
    """`count` machines of one offer with so many GPUs each."""

    key: OfferKey
    gpus: int
    count: int
    machine_id: str | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is to be rented beside what is held. `lack_fraction`: of the most that could be served, what is not."""

    machines: tuple[Machines, ...]
    usd_per_hour: float
    lack_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class Claimant:
    """A problem with all that it may rent, also what others plan on; what it holds is among its offers.

    `planned`: what it was to rent; None: nothing that serves it. `purse`: what it is paid from, with others. `own`:
    offers that nobody else can rent.
    """

    problem: Problem
    planned: Fleet | None = None
    priority: int = 0
    purse: str | None = None
    own: Collection[OfferKey] = ()


@dataclass(frozen=True, slots=True)
class Clearing:
    """All that want machines of one market. `purses`: what may be spent beside what is held, USD/h by name."""

    claimants: tuple[Claimant, ...]
    purses: Mapping[str, float] = field(default_factory=dict)
    time_limit_s: float = 60.0


def clear(clearing: Clearing, *, clock: Clock = time.monotonic) -> tuple[Fleet | None, ...]:
    """The fleet of each; None: it is left without one. As planned before, where nobody is in another's way."""
    ends_at = clock() + clearing.time_limit_s
    planned = tuple(claimant.planned for claimant in clearing.claimants)
    bidders = [_Bidder(claimant, lambda: ends_at - clock()) for claimant in clearing.claimants]
    left = _supply(clearing)
    for bidder in bidders:
        bidder.propose({}, left)
    if not _is_contended(bidders, left):
        return planned
    chosen: list[Fleet | None] = [None] * len(bidders)
    for priority in sorted({bidder.claimant.priority for bidder in bidders}, reverse=True):
        level = [index for index, bidder in enumerate(bidders) if bidder.claimant.priority == priority]
        found = _Level([bidders[index] for index in level], left, lambda: ends_at - clock()).cleared()
        for index, fleet in zip(level, found, strict=True):
            chosen[index] = fleet
            left = left - bidders[index].uses(fleet)
    return tuple(chosen)


class _Lots(dict[Lot, float]):
    """Amounts of what is shared; what is not named is not short."""

    def __sub__(self, uses: Mapping[Lot, float]) -> "_Lots":
        return _Lots({lot: amount - uses.get(lot, 0.0) for lot, amount in self.items()})

    def has(self, uses: Mapping[Lot, float]) -> bool:
        return all(amount <= self[lot] + SLACK for lot, amount in uses.items() if lot in self)


def _supply(clearing: Clearing) -> _Lots:
    """What there is: of an offer the least that any problem sees of it, of a machine as many GPUs as its largest."""
    found = _Lots({("purse", name): usd for name, usd in clearing.purses.items()})
    for claimant in clearing.claimants:
        gpus: dict[Lot, float] = {}
        for offer in claimant.problem.offers:
            if not offer.held and _key(offer) not in claimant.own:
                lot, units = _key(offer), offer.available * (offer.gpus if offer.divisible else 1)
                found[lot] = min(found.get(lot, units), units)
                if offer.machine_id is not None:
                    machine: Lot = (offer.provider, offer.machine_id)
                    gpus[machine] = max(gpus.get(machine, 0), offer.gpus)
        for machine, most in gpus.items():
            found[machine] = max(found.get(machine, 0.0), most)
    return found


def _key(offer: Offer) -> OfferKey:
    return offer.provider, offer.offer_id, offer.contract


@dataclass(slots=True)
class _Bidder:
    """A claimant with the fleets that it has proposed, what was planned before first."""

    claimant: Claimant
    seconds_left: SecondsLeft
    fleets: list[Fleet] = field(default_factory=list)
    most_rps: float = 0.0
    best: Fleet | None = None
    proposed: Fleet | None = None
    _offers: dict[OfferKey, Offer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._offers = {_key(offer): offer for offer in self.claimant.problem.offers if not offer.held}
        if self.claimant.planned is not None:
            self.fleets.append(self.claimant.planned)

    def uses(self, fleet: Fleet | None) -> dict[Lot, float]:
        found: dict[Lot, float] = defaultdict(float)
        for one in () if fleet is None else fleet.machines:
            if one.key in self.claimant.own:
                continue
            offer = self._offers.get(one.key)
            found[one.key] += one.count * (one.gpus if offer is not None and offer.divisible else 1)
            if one.machine_id is not None:
                found[one.key[0], one.machine_id] += one.count * one.gpus
        if fleet is not None and self.claimant.purse is not None:
            found["purse", self.claimant.purse] = fleet.usd_per_hour
        return found

    def propose(self, prices: Mapping[Lot, float], left: _Lots) -> bool:
        """Adds its best fleet at these surcharges, of no more than is left; whether it is a new one."""
        self.proposed = None
        if self.seconds_left() <= 0:
            return False
        offers = [self._offered(offer, prices, left) for offer in self.claimant.problem.offers]
        problem = replace(self.claimant.problem, offers=tuple(offer for offer in offers if offer.available > 0))
        budget = problem.budget_usd_per_hour
        most_usd = min(inf if budget is None else budget, left.get(("purse", self.claimant.purse or ""), inf))
        if not problem.objective.maximises_rate:  # surcharges are no money that is spent
            limit = None if prices or most_usd == inf else max(0.0, most_usd)
            problem = replace(problem, budget_usd_per_hour=limit)
        fleet = self._best(problem)
        if fleet is None and problem.objective.headroom_fraction > 0 and not prices:
            fleet = self._best(problem.with_headroom(0.0))
        if self.best is None:
            self.best = fleet
        self.proposed = fleet
        if fleet is None or fleet in self.fleets or fleet.usd_per_hour > most_usd + SLACK:
            return False
        self.fleets.append(fleet)
        return True

    def _offered(self, offer: Offer, prices: Mapping[Lot, float], left: _Lots) -> Offer:
        """What is held is paid for in any case."""
        if offer.held:
            return replace(offer, price_usd_per_hour=0.0)
        lot, machine = _key(offer), (offer.provider, offer.machine_id or "")
        if lot in self.claimant.own:
            return offer
        room = int(left[lot] + SLACK)
        if left.get(machine, offer.gpus) < offer.gpus:
            room = min(room, int(left[machine] + SLACK)) if offer.divisible else 0
        money = prices.get(("purse", self.claimant.purse or ""), 0.0)
        per_lot = prices.get(lot, 0.0) * (offer.gpus if offer.divisible else 1)
        usd = offer.price_usd_per_hour * (1 + money) + per_lot + prices.get(machine, 0.0) * offer.gpus
        if offer.divisible and 0 < room < offer.gpus:
            return replace(offer, gpus=room, available=1, price_usd_per_hour=usd * room / offer.gpus)
        if offer.divisible:
            return replace(offer, available=min(offer.available, room // offer.gpus), price_usd_per_hour=usd)
        return replace(offer, available=min(offer.available, room), price_usd_per_hour=usd)

    def _best(self, problem: Problem) -> Fleet | None:
        if not problem.offers:
            return None
        polytope = enumerated(problem).polytope(problem)
        scaled = scaled_to_one(polytope) if polytope.servable().all() else None
        if scaled is None:
            return None
        goal = first_goal(scaled)
        found = exact.minimise(scaled, goal, relative_gap=FLEET_GAP, seconds_left=self.seconds_left).allocation
        if found is None or found.lam < LEAST_LAM:
            return None
        lack = 0.0
        if problem.objective.maximises_rate:
            rate = found.lam * scaled.scale_rps
            self.most_rps = self.most_rps or rate
            lack = max(0.0, 1 - rate / self.most_rps)
        rentals, _ = pack(scaled, found)
        new = Counter[tuple[OfferKey, int]]()
        for rental in rentals:
            if not rental.held:
                new[(rental.provider, rental.offer_id, rental.contract), rental.gpus] += rental.count
        machines = [Machines(key, gpus, count, self._offers[key].machine_id) for (key, gpus), count in new.items()]
        usd = sum(self._usd_per_hour(one) for one in machines)
        return Fleet(tuple(sorted(machines, key=lambda one: (one.key, one.gpus))), usd, lack)

    def _usd_per_hour(self, one: Machines) -> float:
        offer = self._offers[one.key]
        return offer.price_usd_per_hour * one.gpus / offer.gpus * one.count


def _is_contended(bidders: Sequence[_Bidder], supply: _Lots) -> bool:
    """Whether anybody's best fleet finds no room beside what the others were to rent, or anybody lacks what it may
    have."""
    if any(b.best is not None and (b.claimant.planned is None or b.claimant.planned.lack_fraction) for b in bidders):
        return True
    uses = [bidder.uses(bidder.claimant.planned) for bidder in bidders]
    left = supply
    for one in uses:
        left = left - one
    return any(
        bidder.best is not None and not (left - {lot: -amount for lot, amount in own.items()}).has(wanted)
        for bidder, own in zip(bidders, uses, strict=True)
        for wanted in [bidder.uses(bidder.best)]
    )


@dataclass(slots=True)
class _Level:
    """Claimants of one priority, and what those above leave them."""

    bidders: Sequence[_Bidder]
    left: _Lots
    seconds_left: SecondsLeft

    def cleared(self) -> list[Fleet | None]:
        before = [bidder.claimant.planned for bidder in self.bidders]
        for bidder in self.bidders:
            bidder.propose({}, self.left)
        prices: dict[Lot, float] = {}
        chosen, duals = self._choose()
        for _ in range(MOST_ROUNDS):
            new = [bidder.propose(prices, self.left) for bidder in self.bidders] if prices else []
            if prices and self._counted(chosen) <= self._bound_usd(prices) * (1 + NEAR_ENOUGH):
                break
            new += self._complete(chosen)
            if any(new):
                chosen, duals = self._choose()
            elif prices == duals or self.seconds_left() <= 0:
                break
            elif prices:
                prices = duals
                continue
            prices = {
                lot: usd
                for lot in duals.keys() | prices.keys()
                for usd in [_smoothed(prices.get(lot), duals.get(lot, 0.0), is_first=not prices)]
                if usd > LEAST_PRICE
            }
            if not prices:
                break
        is_dropped = any(old is not None and new is None for old, new in zip(before, chosen, strict=True))
        if is_dropped and self._fit(before) and _served(chosen) <= _served(before):
            chosen, _ = self._choose(drops_nobody=True)  # nobody loses its fleet for one that is only cheaper
        return chosen if self._is_worth_it(before, chosen) else before

    def _bound_usd(self, prices: Mapping[Lot, float]) -> float:
        """What no choice goes below (Lagrange): the proposals at these surcharges, less what these bring."""
        short = self._short_usd()
        usd = [short] * len(self.bidders)
        for row, bidder in enumerate(self.bidders):
            if bidder.claimant.problem.objective.maximises_rate:
                usd[row] = 0.0
            elif bidder.proposed is not None:
                surcharge = sum(prices.get(lot, 0.0) * amount for lot, amount in bidder.uses(bidder.proposed).items())
                usd[row] = min(short, self._counted_usd(bidder.proposed) + surcharge)
        return sum(usd) - sum(price * max(0.0, self.left[lot]) for lot, price in prices.items())

    def _complete(self, chosen: Sequence[Fleet | None]) -> list[bool]:
        """Who is left without a fleet proposes one from what the others leave."""
        left = self._without(chosen)
        return [bidder.propose({}, left) for bidder, fleet in zip(self.bidders, chosen, strict=True) if fleet is None]

    def _without(self, fleets: Iterable[Fleet | None]) -> _Lots:
        left = self.left
        for bidder, fleet in zip(self.bidders, fleets, strict=True):
            left = left - bidder.uses(fleet)
        return left

    def _fit(self, fleets: Iterable[Fleet | None]) -> bool:
        return all(amount >= -SLACK for amount in self._without(fleets).values())

    def _is_worth_it(self, before: Sequence[Fleet | None], after: Sequence[Fleet | None]) -> bool:
        if not self._fit(before):
            return True  # those above have taken some of it
        served = _served(after) - _served(before)
        saved = self._usd(before) - self._usd(after)
        return served > 0 or (served == 0 and saved > LEAST_GAIN * self._usd(before))

    def _usd(self, fleets: Iterable[Fleet | None]) -> float:
        return sum(self._counted_usd(fleet) for fleet in fleets if fleet is not None)

    def _counted(self, fleets: Sequence[Fleet | None]) -> float:
        return self._usd(fleets) + self._short_usd() * sum(fleet is None for fleet in fleets)

    def _counted_usd(self, fleet: Fleet) -> float:
        return fleet.usd_per_hour + fleet.lack_fraction * self._short_usd()

    def _short_usd(self) -> float:
        """What being left without a fleet counts for: more than all fleets cost together."""
        return 1.0 + 2 * sum(max((f.usd_per_hour for f in bidder.fleets[:2]), default=0.0) for bidder in self.bidders)

    def _choose(self, *, drops_nobody: bool = False) -> tuple[list[Fleet | None], dict[Lot, float]]:
        """One fleet of each that has one that fits, and what more of each lot would save in all; `drops_nobody`: of
        those that were planned before, which fit."""
        columns = [
            (row, fleet, bidder.uses(fleet))
            for row, bidder in enumerate(self.bidders)
            for fleet in bidder.fleets
            if self.left.has(bidder.uses(fleet))
        ]
        lots = sorted({lot for _, _, uses in columns for lot in uses if lot in self.left})
        row_of = {lot: len(self.bidders) + row for row, lot in enumerate(lots)}
        entries = [(row, column, 1.0) for column, (row, _, _) in enumerate(columns)]
        entries += [(row, len(columns) + row, 1.0) for row in range(len(self.bidders))]  # left without
        entries += [
            (row_of[lot], column, amount)
            for column, (_, _, uses) in enumerate(columns)
            for lot, amount in uses.items()
            if lot in row_of and amount > 0
        ]
        rows, at, values = (np.array(part) for part in zip(*entries, strict=True))
        width, height = len(columns) + len(self.bidders), len(self.bidders) + len(lots)
        stays = [1.0 if fleet is self.bidders[row].claimant.planned else 1 + STAYS for row, fleet, _ in columns]
        short = [self._short_usd()] * len(self.bidders)
        usd = [self._counted_usd(fleet) * more for (_, fleet, _), more in zip(columns, stays, strict=True)]
        without = [float(not drops_nobody or bidder.claimant.planned is None) for bidder in self.bidders]
        each, room = np.ones(len(self.bidders)), np.array([self.left[lot] for lot in lots], dtype=float)
        program = LinearProgram(
            cost=np.array([*usd, *short]),
            matrix=csr_array((values, (rows, at)), shape=(height, width)),
            row_lower=np.concatenate([each, np.full(len(lots), -np.inf)]),
            row_upper=np.concatenate([each, np.maximum(room, 0.0)]),
            lower=np.zeros(width),
            upper=np.concatenate([np.ones(len(columns)), without]),
            integer=np.ones(width, dtype=bool),
        )
        duals = solve_lp(program).row_duals
        time_limit_s = max(LEAST_CHOICE_S, self.seconds_left())
        found = solve_milp(program, relative_gap=FLEET_GAP / 2, time_limit_s=time_limit_s)
        if found.x is None:
            raise EngineError(f"HiGHS chose no fleets within {time_limit_s:.0f} s")
        chosen: list[Fleet | None] = [None] * len(self.bidders)
        for column, (row, fleet, _) in enumerate(columns):
            if found.x[column] > 0.5:
                chosen[row] = fleet
        return chosen, {lot: max(0.0, -float(duals[row])) for lot, row in row_of.items() if duals[row] < -LEAST_PRICE}


def _served(fleets: Iterable[Fleet | None]) -> int:
    return sum(fleet is not None for fleet in fleets)


def _smoothed(before: float | None, dual: float, *, is_first: bool) -> float:
    return dual if is_first else SMOOTHING * (before or 0.0) + (1 - SMOOTHING) * dual
