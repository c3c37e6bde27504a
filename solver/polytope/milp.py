"""The polytope as a MILP over some of its candidates, and its solutions as counts and shares.

Layout groups: where several chosen candidates have the same pieces, the supply rows count the group N[g] instead
of its members, so that branching settles how many pieces there are before it settles how they are laid out
(the equality alone would be substituted away by presolve). Supply curves: M counts the machines of a size that
are rented in a pool; it stands in the supply rows for its price steps and is the only integer among them, since
the cheaper ones come first by themselves.

Whole replicas: where lam is at most lam_max, all that is asked of a workload or mix w is lam_max f_w, so that one
replica of rate h is busy with it for u = lam_max f_w / h of its time at most. Where u < 1 the rows  z <= u y  hold
for every whole number y, and cut off the fractions of replicas with which the relaxed program serves what is rarely
asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, vstack

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.polytope.column_generation import demand_entries, lam_column
from sutler.solver.polytope.linear import LinearProgram, MilpSolution
from sutler.solver.polytope.rows import RARE, Goal, Polytope, piece_groups
from sutler.solver.polytope.sparse import Entries, column_of, diagonal, entries_of, ones, stacked

_LEAST_SHARE = 1e-5  # of a replica's time; HiGHS takes 1e-6 of a replica for none


@dataclass(frozen=True, slots=True)
class Allocation:
    """A fleet and the load that it carries. candidate [n]; replicas [n]; rented [K]; lam. How requests are shared out
    is settled once it is known which fleet is wanted (answer/routing.py)."""

    candidate: IntArray
    replicas: IntArray
    rented: IntArray
    lam: float


@dataclass(frozen=True, slots=True)
class Milp:
    """Columns in this order: lam | u [K] | z [pairs] | y [chosen] | N [groups] | M [curves]."""

    program: LinearProgram
    chosen: IntArray
    pair_candidate: IntArray  # position in `chosen`
    pair_column: IntArray  # of the rates
    curve_of: IntArray  # [K]
    rent_upper: FloatArray  # [K]
    cheapest_first: IntArray  # [K] order of the classes by price

    def read(self, solution: MilpSolution) -> Allocation:
        """Counts of a solution; candidates without replicas are left out."""
        assert solution.x is not None
        x, replicas = solution.x, solution.x[self.replica_columns()].astype(np.int64)
        used = replicas > 0
        return Allocation(self.chosen[used], replicas[used], self._rented(x[1 : 1 + len(self.curve_of)]), float(x[0]))

    def replica_columns(self) -> IntArray:
        """[chosen] where the replicas of each candidate stand."""
        columns: IntArray = 1 + len(self.curve_of) + len(self.pair_candidate) + np.arange(len(self.chosen))
        return columns

    def with_at_least(self, candidate: IntArray, replicas: IntArray) -> "Milp":
        """With so many replicas of some of the chosen candidates at least."""
        lower = self.program.lower.copy()
        lower[self.replica_columns()[np.searchsorted(self.chosen, candidate)]] = replicas
        return replace(self, program=replace(self.program, lower=lower))

    def with_machines_in_parts(self) -> "Milp":
        """With whole replicas on parts of machines."""
        integer = np.zeros_like(self.program.integer)
        integer[self.replica_columns()] = True
        return replace(self, program=replace(self.program, integer=integer))

    def extended(
        self,
        widths: Sequence[int],
        rows: Sequence[Sequence[Entries | None]],
        *,
        row_lower: FloatArray,
        cost: FloatArray,
        lower: FloatArray,
        upper: FloatArray,
        integer: BoolArray,
    ) -> "Milp":
        """Adds blocks of further columns, and rows of blocks over all of them, those known first, that are at most
        0."""
        program = self.program
        known = [entries_of(program.matrix), *(None for _ in widths)]
        return replace(
            self,
            program=LinearProgram(
                cost=np.concatenate([program.cost, cost]),
                matrix=stacked((program.matrix.shape[1], *widths), [known, *rows]),
                row_lower=np.concatenate([program.row_lower, row_lower]),
                row_upper=np.concatenate([program.row_upper, np.zeros(len(row_lower))]),
                lower=np.concatenate([program.lower, lower]),
                upper=np.concatenate([program.upper, upper]),
                integer=np.concatenate([program.integer, integer]),
            ),
        )

    def _rented(self, machines: FloatArray) -> IntArray:
        """Machine counts; along a supply curve the sum is an integer, filled from the cheap end."""
        rented = np.round(machines).astype(np.int64)
        for curve in range(int(self.curve_of.max(initial=-1)) + 1):
            left = round(float(machines[self.curve_of == curve].sum()))
            for index in self.cheapest_first[self.curve_of[self.cheapest_first] == curve]:
                rented[index] = min(left, int(self.rent_upper[index]))
                left -= rented[index]
        return rented


def build_milp(
    polytope: Polytope,
    goal: Goal,
    chosen: IntArray,
    *,
    rent_lower: FloatArray | None = None,
    rent_upper: FloatArray | None = None,
    most_lam: float = np.inf,
) -> Milp:
    """The MILP over the chosen candidates, machine counts and lam within the given bounds."""
    part, column = np.nonzero(polytope.rate[chosen] > 0)
    busy = polytope.busy_at_most(chosen[part], column, most_lam)
    rare = np.flatnonzero(busy < RARE)
    groups, curves = _group_columns(polytope, chosen), polytope.curve_of
    rent, pairs, fleet = len(polytope.cost_rent), len(part), len(chosen)
    num_groups, num_curves = int(groups.max(initial=-1)) + 1, int(curves.max(initial=-1)) + 1
    supply = np.array([name.startswith("supply/") for name in polytope.resources])
    own_use, group_use = _grouped(polytope.use[:, chosen], groups, supply)
    own_rent, curve_rent = _grouped(polytope.rent, curves, supply)
    demand = demand_entries(_with_shares_that_count(polytope), chosen[part], column)
    top, resources = demand.height, len(polytope.limit)
    each_rare = np.arange(len(rare))
    busy_with = Entries(-busy[rare], each_rare, part[rare], len(rare))
    matrix = stacked(
        (1, rent, pairs, fleet, num_groups, num_curves),
        [
            [column_of(lam_column(polytope)), None, demand, None, None, None],
            [None, None, ones(part, np.arange(pairs), fleet), diagonal(-np.ones(fleet)), None, None],
            [None, None, ones(each_rare, rare, len(rare)), busy_with, None, None],
            [None, own_rent, None, own_use, group_use, curve_rent],
            [None, None, None, _members(groups, num_groups), diagonal(-np.ones(num_groups)), None],
            [None, _members(curves, num_curves), None, None, None, diagonal(-np.ones(num_curves))],
        ],
    )
    most = polytope.rent_upper if rent_upper is None else rent_upper
    least = np.zeros(rent) if rent_lower is None else rent_lower
    use_upper = polytope.use_upper[chosen]
    sums = np.concatenate([_sums(use_upper, groups, num_groups), _sums(most, curves, num_curves)])
    inequalities = top - len(polytope.demands) + fleet + len(rare) + resources
    program = LinearProgram(
        cost=np.concatenate(
            [[goal.lam_weight], goal.rent_cost, np.zeros(pairs), goal.use_cost[chosen], np.zeros(len(sums))]
        ),
        matrix=matrix,
        row_lower=np.concatenate(
            [np.zeros(len(polytope.demands)), np.full(inequalities, -np.inf), np.zeros(len(sums))]
        ),
        row_upper=np.concatenate([np.zeros(top + fleet + len(rare)), polytope.limit, np.zeros(len(sums))]),
        lower=np.concatenate([[goal.lam_lower], least, np.zeros(pairs + fleet + len(sums))]),
        upper=np.concatenate([[most_lam], most, use_upper[part], use_upper, sums]),
        integer=np.concatenate([[False], curves < 0, np.zeros(pairs), np.ones(fleet + len(sums))]).astype(np.bool_),
    )
    cheapest_first = np.argsort(polytope.cost_rent, kind="stable")
    return Milp(program, chosen, part, column, curves, polytope.rent_upper, cheapest_first)


def with_second_routing(milp: Milp, polytope: Polytope, *, weight: float, least_lam: float) -> Milp:
    """Adds a second routing of the same fleet, at the rates of `polytope`: columns lam | z [pairs] at the end.

    Its lam is `weight` in the goal, and at least `least_lam`.
    """
    part, column = np.nonzero(polytope.rate[milp.chosen] > 0)
    pairs, fleet = len(part), len(milp.chosen)
    demand = demand_entries(_with_shares_that_count(polytope), milp.chosen[part], column)
    top, demands = demand.height, len(polytope.demands)
    of_part = ones(part, np.arange(pairs), fleet)
    runs = Entries(-np.ones(fleet), np.arange(fleet), milp.replica_columns(), fleet)
    lam = column_of(lam_column(polytope))
    return milp.extended(
        (1, pairs),
        [[None, lam, demand], [runs, None, of_part]],
        row_lower=np.concatenate([np.zeros(demands), np.full(top - demands + fleet, -np.inf)]),
        cost=np.concatenate([[weight], np.zeros(pairs)]),
        lower=np.concatenate([[least_lam], np.zeros(pairs)]),
        upper=np.concatenate([[np.inf], polytope.use_upper[milp.chosen][part]]),
        integer=np.zeros(1 + pairs, dtype=np.bool_),
    )


def with_goal_at_most(milp: Milp, most: float) -> Milp:
    """Adds a row that keeps the goal itself at `most`."""
    program = milp.program
    return replace(
        milp,
        program=replace(
            program,
            matrix=csr_array(vstack([program.matrix, csr_array(program.cost[None])])),
            row_lower=np.append(program.row_lower, -np.inf),
            row_upper=np.append(program.row_upper, most),
        ),
    )


def with_kinds_counted(milp: Milp, polytope: Polytope) -> Milp:
    """Adds a 1 to the goal for every candidate that has replicas and every provider that something is rented from.

    Columns at the end: used [chosen] | providers. Pools without rental variables do not tell their providers.
    """
    fleet = len(milp.chosen)
    names = [offer_class.provider for offer_class in polytope.supply.classes]
    rent, providers = len(names), len(set(names))
    provider = np.unique(names, return_inverse=True)[1].reshape(-1)
    replicas, upper = milp.replica_columns(), milp.program.upper
    runs = ones(np.arange(fleet), replicas, fleet)
    rents = ones(np.arange(rent), 1 + np.arange(rent), rent)
    most = Entries(-upper[1 : 1 + rent], np.arange(rent), provider, rent)
    return milp.extended(
        (fleet, providers),
        [[runs, diagonal(-upper[replicas]), None], [rents, None, most]],
        row_lower=np.full(fleet + rent, -np.inf),
        cost=np.ones(fleet + providers),
        lower=np.zeros(fleet + providers),
        upper=np.ones(fleet + providers),
        integer=np.ones(fleet + providers, dtype=np.bool_),
    )


def _with_shares_that_count(polytope: Polytope) -> Polytope:
    """Bounds the rates so that whoever serves a demand spends a share of its time on it that HiGHS can tell from
    none: of a request in a week it could not, and no replica would serve it."""
    most = polytope.offered / _LEAST_SHARE
    return replace(polytope, rate=np.minimum(polytope.rate, most[polytope.candidates.model]))


def _group_columns(polytope: Polytope, chosen: IntArray) -> IntArray:
    """[chosen] a number for each group of two or more chosen candidates with the same pieces, else -1."""
    signature = piece_groups(polytope.candidates.take(chosen))
    counts = np.bincount(signature, minlength=1)
    numbers = np.where(counts > 1, np.cumsum(counts > 1) - 1, -1)
    return numbers[signature] if len(chosen) else np.zeros(0, dtype=np.int64)


def _grouped(matrix: csr_array, numbers: IntArray, supply: BoolArray) -> tuple[Entries, Entries]:
    """What columns use by themselves, and what their groups use: in the rows of `supply` [R], a group counts once and
    its members, which use the same, do not. `numbers` [columns]: of their groups, -1 where there is none."""
    entries = entries_of(matrix)
    of_groups = supply[entries.rows] & (numbers[entries.columns] >= 0)
    is_first = np.zeros(len(numbers), dtype=np.bool_)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    grouped = entries.where(of_groups & is_first[entries.columns])
    return entries.where(~of_groups), replace(grouped, columns=numbers[grouped.columns])


def _members(numbers: IntArray, count: int) -> Entries:
    """[count, len(numbers)] one row per number, ones at its members."""
    members = np.flatnonzero(numbers >= 0)
    return ones(numbers[members], members, count)


def _sums(values: FloatArray, numbers: IntArray, count: int) -> FloatArray:
    """[count] of the values with each number."""
    return np.bincount(numbers[numbers >= 0], values[numbers >= 0], minlength=count).astype(np.float64)
