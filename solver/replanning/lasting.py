"""A bound on what changes save that holds on later markets, too: most polls change nothing for most deployments.

The dual prices of the relaxation say what requests are worth, and so the most that a machine of each kind can carry,
in USD/h. Whatever is for rent later at whichever price, all of a fleet's machines together have to carry all that is
needed: the cheapest cover of that by fractions of machines, each for its worth, costs no more than any fleet. Where
capacity is bought, no fleet is worth more than the fractions of machines that are worth the most within the budget.
Both take a sort, where another relaxation would rate every layout on every machine.

It is a relaxation of the Lagrangian of polytope/column_generation.py in which all rows but those of demand and of
machines are left out, so that it is weaker than that where one of the others binds. In one way it is closer: machines
are rented whole, so that none counts for more than all that is needed (as in the cover inequalities of Carr et al.,
"Strengthening integrality gaps for capacitated network design and covering problems", SODA 2000). That also bounds
what an unknown machine is worth.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import AGGREGATED
from sutler.solver.market.pools import PIECE_SIZES, Pool
from sutler.solver.market.supply import Supply, build_supply, room_of
from sutler.solver.polytope.column_generation import gains
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem
from sutler.solver.replanning.switching import Switching

_ROUNDING = 1e-9  # relative
_USD_STEP = 2.0**-20  # what worth is rounded up to: a millionth of a dollar needs few digits where it is stored


@dataclass(frozen=True, slots=True)
class Machines:
    """GPUs that carry the same wherever they are, whatever they cost; the fields are those of a pool.

    `disk_gb_per_gpu` None: as much as is needed. `network`: what joins them, with its width, on which more of them
    may do what fewer could not; empty: nothing.
    """

    gpu: str
    intra_gb_per_s: float
    disk_gb_per_gpu: float | None
    disk_included_gb_per_gpu: float
    storage_usd_per_gb_month: float
    unfit_for: tuple[tuple[str, str], ...]
    network: str = ""

    def can_do_all_of(self, other: "Machines") -> bool:
        """Whether whatever runs on the others runs on these, as fast and with no more to pay beside the machine. What
        several machines of a network are worth together is told of each of them alone."""
        if self.network or other.network:
            return self == other
        return (
            self.gpu == other.gpu
            and self.intra_gb_per_s >= other.intra_gb_per_s
            and _or_no_limit(self.disk_gb_per_gpu) >= _or_no_limit(other.disk_gb_per_gpu)
            and self.disk_included_gb_per_gpu >= other.disk_included_gb_per_gpu
            and self.storage_usd_per_gb_month <= other.storage_usd_per_gb_month
            and set(self.unfit_for) <= set(other.unfit_for)
        )


@dataclass(frozen=True, slots=True)
class Worth:
    """What each GPU of some machines is worth at most in a piece of so many GPUs, USD/h, by ascending `sizes`.
    `count`: how many GPUs there were."""

    machines: Machines
    sizes: tuple[int, ...]
    usd_per_gpu_hour: tuple[float, ...]
    count: int

    def says_all_of(self, other: "Worth") -> bool:
        """Whether the other is no closer for any machine."""
        known = dict(zip(self.sizes, self.usd_per_gpu_hour, strict=True))
        return self.machines.can_do_all_of(other.machines) and all(
            known.get(size, inf) <= usd * (1 + _ROUNDING)
            for size, usd in zip(other.sizes, other.usd_per_gpu_hour, strict=True)
        )

    def of(self, one: "ForRent") -> float:
        """What one is worth at most, into whichever pieces it is cut; inf: that is not known."""
        if not {*one.sizes} <= {*self.sizes}:
            return inf
        usd = dict(zip(self.sizes, self.usd_per_gpu_hour, strict=True))
        best = total = 0.0
        for size in one.sizes:  # what is worth more for each GPU as a small piece is never left to a large one
            if size in PIECE_SIZES:
                total += max(0.0, usd[size] - best) * (room_of(size, one.gpus) if one.is_machine else 1)
                best = max(best, usd[size])
            else:  # or all of it is one piece
                total = max(total, usd[size] * size)
        return total


@dataclass(frozen=True, slots=True)
class ForRent:
    """`count` machines of a pool at one price, or GPUs, where pieces are paid for by the GPU. `sizes`: of the pieces
    that may be there."""

    pool: int
    gpus: int
    sizes: tuple[int, ...]
    price_usd_per_hour: float
    count: int
    held: bool = False
    is_machine: bool = True


@dataclass(frozen=True, slots=True)
class LastingBound:
    """What fleets can save at most on any market, with the same load, the same machines that stand and the same
    charges.

    `needed_usd_per_hour`: what the load is worth, or, where capacity is bought, what runs: who spends less has to
    carry all of it; `worth`: how much of it machines carry. Storage beside them is worth `beside_usd` for each
    dollar, and `beside_fraction` of all at most. Of what starts nothing: `held_usd_per_hour`, the least cost (None:
    nothing carries it), and `held_worth_usd_per_hour`, the most that it is worth (None: more is worth nothing).
    """

    needed_usd_per_hour: float
    held_usd_per_hour: float | None
    held_worth_usd_per_hour: float | None
    beside_fraction: float
    beside_usd: float
    worth: tuple[Worth, ...]

    def most_saved_usd_per_hour(
        self, problem: Problem, switching: Switching, *, cost_usd_per_hour: float, worth_usd_per_hour: float
    ) -> float:
        """What any fleet on the market of `problem` is better by at most, less the change to it, than one of this
        cost, whose capacity is worth so much; inf: it has machines of which nothing is known that matter."""
        supply = build_supply(problem)
        for_rent = _for_rent(supply)
        price = np.array([one.price_usd_per_hour for one in for_rent])
        count = np.array([one.count for one in for_rent])
        held = np.array([one.held for one in for_rent], dtype=np.bool_)
        known = self._known(supply, for_rent)
        worth = np.array([min((each.of(one) for each in known[one.pool]), default=inf) for one in for_rent])
        start_s, per_hour = switching.least_start_s(problem), switching.weight / switching.horizon_h
        start = np.where(held, 0.0, switching.start_usd(1.0, start_s) * per_hour) * price
        stop = np.where(held, switching.stop_usd(1.0, start_s) * per_hour, 0.0) * price
        least = self._least_cost_usd_per_hour(price + start - stop, worth, count) + float(stop @ count)
        saved = cost_usd_per_hour - min(least, _or_no_limit(self.held_usd_per_hour))
        if self.held_worth_usd_per_hour is None:
            return saved
        most = self._most_worth_usd_per_hour(price, worth - start + stop, count, problem.budget_usd_per_hour)
        most = max(most - float(stop @ count), self.held_worth_usd_per_hour)
        return max(saved, most - worth_usd_per_hour)

    def _least_cost_usd_per_hour(self, cost: FloatArray, worth: FloatArray, count: IntArray) -> float:
        """The least cost of fractions of machines that carry what is needed."""
        needed = self.needed_usd_per_hour
        worth = np.minimum(worth, needed)  # no more is needed of a whole machine
        free = cost <= 0
        total = float(cost[free] @ count[free])
        left = needed - float(worth[free] @ count[free])
        useful = ~free & (worth > 0)
        ratio, each = cost[useful] / worth[useful], worth[useful] * count[useful]
        if self.beside_usd > 0:
            ratio, each = np.append(ratio, 1 / self.beside_usd), np.append(each, self.beside_fraction * needed)
        order = np.argsort(ratio, kind="stable")
        taken = np.minimum(np.cumsum(each[order]), max(0.0, left))
        return total + float(np.diff(taken, prepend=0.0) @ ratio[order])

    def _most_worth_usd_per_hour(
        self, price: FloatArray, worth: FloatArray, count: IntArray, budget_usd_per_hour: float | None
    ) -> float:
        """The most that fractions of machines are worth within the budget."""
        useful = worth > 0
        if budget_usd_per_hour is None or np.isinf(worth).any():
            return float(worth[useful] @ count[useful])
        free = useful & (price <= 0)
        paid = useful & ~free
        ratio, spent = worth[paid] / price[paid], price[paid] * count[paid]
        ratio, spent = np.append(ratio, self.beside_usd), np.append(spent, budget_usd_per_hour)
        order = np.argsort(-ratio, kind="stable")
        taken = np.minimum(np.cumsum(spent[order]), budget_usd_per_hour)
        return float(worth[free] @ count[free]) + float(np.diff(taken, prepend=0.0) @ ratio[order])

    def _known(self, supply: Supply, for_rent: Sequence[ForRent]) -> list[list[Worth]]:
        """Returns [pools] what is known of machines that can do all that these can."""
        pools, of_gpu = [_machines(pool) for pool in supply.pools], defaultdict(list)
        count = _gpus_of(pools, for_rent)
        for each in self.worth:
            of_gpu[each.machines.gpu].append(each)
        return [
            [
                each
                for each in of_gpu[machines.gpu]
                if each.machines.can_do_all_of(machines) and not (machines.network and count[machines] > each.count)
            ]
            for machines in pools
        ]


def lasting_bound(
    polytope: Polytope, relaxation: Relaxation, *, needed_lam: float, held_usd: float, held_worth_usd: float | None
) -> LastingBound | None:
    """The bound at the prices of a relaxation of the goal, for fleets that have to carry `needed_lam`.

    `held_usd` and `held_worth_usd`: as in LastingBound, not finite where nothing carries it. None where it would not
    hold: where replicas hand over to each other, which takes more than machines.
    """
    if (polytope.candidates.role != AGGREGATED).any() or not isfinite(relaxation.objective):
        return None
    num_demands = len(polytope.demands)
    prices = np.where(np.arange(polytope.num_rate_rows) < num_demands, relaxation.demand_duals, 0.0)
    fractions = np.array([demand.fraction for demand in polytope.demands])
    needed = float(fractions @ prices[:num_demands]) * needed_lam
    earned = np.maximum(np.where(polytope.rate > 0, gains(polytope, prices), 0.0).max(axis=1), 0.0)
    of_budget = max(0.0, -float(relaxation.resource_duals[polytope.resources.index("budget")]))
    beside_usd = 1.0 if held_worth_usd is None else of_budget
    storage = polytope.candidates.storage_usd_per_hour * beside_usd
    used = (relaxation.load > 0) & (earned > 0)
    beside = float(min(1.0, (storage[used] / earned[used]).max(initial=0.0)))
    per_piece = _usd_per_gpu(polytope, earned - np.minimum(storage, beside * earned))
    for_rent, pools = _for_rent(polytope.supply), [_machines(pool) for pool in polytope.supply.pools]
    count = _gpus_of(pools, for_rent)
    most: dict[Machines, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for one in for_rent:
        of_size = most[pools[one.pool]]
        for size in one.sizes:
            of_size[size] = max(of_size[size], ceil(per_piece.get((one.pool, size), 0.0) / _USD_STEP) * _USD_STEP)
    found = [
        Worth(machines, tuple(sorted(usd)), tuple(usd[size] for size in sorted(usd)), count[machines])
        for machines, usd in most.items()
    ]
    held = held_usd if isfinite(held_usd) else None
    held_worth = held_worth_usd if held_worth_usd is None or isfinite(held_worth_usd) else 0.0
    return LastingBound(needed, held, held_worth, beside, beside_usd, _without_repetition(found))


def _without_repetition(found: Sequence[Worth]) -> tuple[Worth, ...]:
    """Leaves out what others say as well, of all that say the same the first."""
    said: list[Worth] = []
    for each in found:
        if not any(other.says_all_of(each) for other in said):
            said = [other for other in said if not each.says_all_of(other)] + [each]
    return tuple(said)


def _or_no_limit(value: float | None) -> float:
    return inf if value is None else value


def _machines(pool: Pool) -> Machines:
    network = "" if pool.network is None else f"{pool.network} {pool.inter_gb_per_s:g} {pool.largest_machine}"
    return Machines(
        pool.gpu,
        pool.intra_gb_per_s,
        pool.disk_gb_per_gpu if isfinite(pool.disk_gb_per_gpu) else None,
        pool.disk_included_gb_per_gpu,
        pool.storage_usd_per_gb_month,
        tuple(sorted(pool.unfit_for)),
        network,
    )


def _for_rent(supply: Supply) -> list[ForRent]:
    found = []
    for one in supply.classes:
        sizes = tuple(size for size in PIECE_SIZES if size <= one.gpus)
        sizes = sizes if one.gpus in PIECE_SIZES else (*sizes, one.gpus)
        found.append(ForRent(one.pool, one.gpus, sizes, one.price_usd_per_hour, one.count, one.held))
    for pool, price in supply.gpu_price_usd_per_hour.items():
        sizes = tuple(size for size in PIECE_SIZES if supply.room_gpus[pool, size] > 0)
        found.append(ForRent(pool, 1, sizes, price, supply.room_gpus[pool, 1], is_machine=False))
    return found


def _gpus_of(pools: Sequence[Machines], for_rent: Iterable[ForRent]) -> dict[Machines, int]:
    """How many GPUs of each kind of machine there are."""
    found: dict[Machines, int] = defaultdict(int)
    for one in for_rent:
        found[pools[one.pool]] += one.gpus * one.count
    return found


def _usd_per_gpu(polytope: Polytope, earned: FloatArray) -> dict[tuple[int, int], float]:
    """By pool and size of a piece, what each GPU of such a piece is worth, so that no replica earns more than its
    pieces are worth together."""
    pools, sizes = polytope.candidates.piece_pool, polytope.candidates.piece_size
    found: dict[tuple[int, int], float] = defaultdict(float)
    in_order = np.argsort((sizes > 0).sum(axis=1), kind="stable")  # what single pieces are worth comes first
    for candidate in in_order.tolist():
        pieces = [(p, s) for p, s in zip(pools[candidate].tolist(), sizes[candidate].tolist(), strict=True) if s]
        missing = earned[candidate] - sum(found[piece] * piece[1] for piece in pieces)
        if missing > 0:
            more = missing / sum(size for _, size in pieces)
            for piece in {*pieces}:
                found[piece] += more
    return found
