"""Fleets without their routing, searched by branch and cut (solver/tree), with the machines that are rented for them.

Flow: exact.minimise -> prove, improve (here) <-> the tree: counts to branch on, and for each of its points the
inequalities that it breaks and, where it is whole, what it is worth (fleets.py).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.sparse import csr_array, vstack

from sutler.solver import tree
from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.methods.fleets import RELAXED_CLOSE, adopt, bounds_of, cut_between
from sutler.solver.methods.search import (
    CUTOFF_SHARE,
    LEAST_RELAXED,
    ROUNDING,
    Search,
    has_mixes,
    of_kinds_in_use,
    promising,
    smallest,
)
from sutler.solver.polytope.column_generation import FleetRow
from sutler.solver.polytope.linear import LinearProgram
from sutler.solver.polytope.one_model import LEAST_MODELS
from sutler.solver.polytope.relaxation import most_lam
from sutler.solver.polytope.rounding_cuts import RoundingCut, rounding_cuts
from sutler.solver.polytope.rows import Polytope, piece_groups
from sutler.solver.polytope.supply_hulls import supply_hulls
from sutler.solver.tree import CountArray, Told

_STEPS = (60, 250, 1000)  # columns that plans are looked for among before all that are left
_FEW_ENOUGH = 1.5  # survivors per column of the next step at which all of them are searched
_NODES, _MIXED_NODES = 300, 1000  # of a step, and where replicas may serve fixed mixes
_MOST_NODES = 200_000  # some 20 seconds: what is not proven by then is left to HiGHS, whose cuts are others
_MOST_AWAKE, _AWAKE = (
    30_000,
    1000,
)  # columns of a tableau: of more, most sleep at first, or a pivot takes milliseconds
_ROOT_ROUNDS = 25  # of inequalities before any branching: each round lowers the root by less than the one before
_POINTS_NEARBY = 30  # of every kind of machines in use; chosen: with 12 half of the better plans are missed
_NEARLY_CARRIED = 1e-3  # of lam: routing that breaks by more is cut off before whole replicas are asked for
_EXACT_GAP = 1e-9  # relative: what is left where a small search goes on to the best plan there is
_EXACT_COLUMNS, _EXACT_NODES = 400, 300


def is_possible(polytope: Polytope) -> bool:
    """Whether fleets alone are few rows and whole counts, and the tree was compiled. Many models that rent machines
    are many of both, and what machines hand over inside themselves only routing tells: it finds no plan of either."""
    are_few = len(polytope.problem.models) < LEAST_MODELS and polytope.num_flows == 0
    return tree.IS_BUILT and (len(polytope.cost_rent) == 0 or are_few) and not polytope.losses.of_any_machine


def improve(search: Search, chosen: IntArray, node_limit: int) -> None:
    """Search among the chosen candidates only, with a step's nodes at least where that is hard; proves nothing."""
    nodes = max(node_limit, _MIXED_NODES) if has_mixes(search.polytope) else node_limit
    _Trees(search).search(chosen, nodes, covers_all=False)


def prove(search: Search, node_limit: int | None) -> None:
    """Search ever more candidates for a plan, then all that a better plan could have: the bound covers the whole
    problem. Small searches go on to the best plan there is."""
    trees, nodes = _Trees(search), _MIXED_NODES if has_mixes(search.polytope) else _NODES
    for count in _STEPS:
        left = search.survivors()[0]
        if search.closed() or search.seconds_left() <= 0 or len(left) <= _FEW_ENOUGH * count:
            break
        few, before = promising(search.polytope, search.relaxation, count), search.value
        trees.search(np.intersect1d(few, left), nodes, covers_all=False)
        trees.improve_nearby(before, nodes)
    if not search.closed() and search.seconds_left() > 0:
        trees.search(search.survivors()[0], node_limit or _MOST_NODES, covers_all=True)
    if search.is_part:
        return
    near_best = search.survivors(_EXACT_GAP)[0]
    if search.closed() and len(near_best) <= _EXACT_COLUMNS and search.seconds_left() > 0:
        trees.search(
            near_best, min(_EXACT_NODES, node_limit or _EXACT_NODES), covers_all=True, relative_gap=_EXACT_GAP
        )


class _Trees:
    """Trees over ever more candidates, which hand their inequalities on."""

    def __init__(self, search: Search) -> None:
        self._search, self._hulls = search, supply_hulls(search.polytope)
        self._bounds, self._first = bounds_of(search), 1 + len(search.polytope.cost_rent)
        self._of_workloads = list[FleetRow]()
        if search.incumbent is not None:
            own = search.incumbent.replicas.astype(np.float64)
            self._bounds.tighten(search.incumbent.candidate, own, self._bounds.most_lam)

    def search(
        self, chosen: IntArray, node_limit: int, *, covers_all: bool, relative_gap: float | None = None
    ) -> None:
        """One tree over these candidates. `relative_gap`: to which it ends; None: that of the search."""
        search, bounds = self._search, self._bounds
        gap = CUTOFF_SHARE * search.relative_gap if relative_gap is None else relative_gap
        cutoff = search.cutoff(gap)

        def separate(point: FloatArray, place: tree.Place) -> Told:
            _, rented, replicas = np.split(np.maximum(point, 0.0), [1, self._first])
            known, used = len(bounds.rows), np.flatnonzero(replicas > LEAST_RELAXED)
            if place == "plan":
                return self._told(self._value(chosen[used], replicas[used], rented, float(point[0])), known, chosen)
            hulls, is_rounded = list[FloatArray](), True
            if place == "root":
                carried = bounds.tighten(chosen[used], replicas[used], float(point[0]))
                # Parts are small and searched by the hundred: rounds before their first node take longer than nodes.
                is_rounded = carried >= point[0] * (1 - _NEARLY_CARRIED) and not search.is_part
                if carried < point[0] * (1 - RELAXED_CLOSE):
                    cut_between(search, bounds, chosen[used], replicas[used])
                hulls = self._hulls.separate(chosen[used], replicas[used])
            rounded = self._rounded(chosen[used], replicas[used], search.cutoff(gap)) if is_rounded else []
            return self._told(np.inf, known, chosen, hulls, rounded)

        def goes_on(bound: float, nodes: int) -> bool:
            search.report("tree", search.value, max(bound if covers_all else -np.inf, search.relaxation.bound))
            return search.seconds_left() > 0

        found = tree.search(
            self._program(chosen, gap),
            counts_of(search.polytope, chosen),
            cutoff=cutoff,
            gap=gap,
            most_nodes=node_limit,
            root_rounds=_ROOT_ROUNDS,
            separate=separate,
            goes_on=goes_on,
            is_awake=np.append(np.ones(self._first, dtype=np.bool_), self._are_awake(chosen)),
        )
        if covers_all:
            search.bound = max(search.bound, min(found.bound, cutoff))
            search.exhausted = search.exhausted or found.has_ended
        search.relaxation = replace(search.relaxation, cuts=tuple(bounds.rows))
        search.report("tree", search.value, max(search.bound, search.relaxation.bound))

    def improve_nearby(self, before: float, node_limit: int) -> None:
        """Search among ways to run the kinds of machines in use, as long as plans get better than `before`. Of fixed
        mixes alone: the relaxation's best points of them lead to plans by chance."""
        search = self._search
        while has_mixes(search.polytope) and search.value < before and search.is_open():
            before, kinds = search.value, piece_groups(search.polytope.candidates)
            near = of_kinds_in_use(search, kinds, _POINTS_NEARBY)
            self.search(np.intersect1d(near, search.survivors()[0]), node_limit, covers_all=False)

    def _program(self, chosen: IntArray, gap: float) -> LinearProgram:
        """Over lam, machines [K] and replicas [chosen], with all inequalities found so far."""
        search = self._search
        _, fewest, most_rented = search.survivors(gap)
        program = self._bounds.program(search.goal, chosen, rent_lower=fewest, rent_upper=most_rented)
        upper, most = program.upper.copy(), [most_lam(search.goal, search.relaxation)]
        of_replicas = upper[self._first :]
        most += [
            float(row.earned[chosen] @ of_replicas - row.fixed) / row.lam for row in self._bounds.rows if row.lam > 0
        ]
        upper[0] = max(min(upper[0], min(most) * (1 + ROUNDING)), program.lower[0])
        lines, sides = self._rows_of(chosen, [], self._hulls.found, [])
        return replace(
            program,
            upper=upper,
            matrix=csr_array(vstack([program.matrix, csr_array(lines)])),
            row_lower=np.append(program.row_lower, np.full(len(lines), -np.inf)),
            row_upper=np.append(program.row_upper, sides),
        )

    def _are_awake(self, chosen: IntArray) -> BoolArray:
        """Of very many columns the most promising."""
        if len(chosen) <= _MOST_AWAKE:
            return np.ones(len(chosen), dtype=np.bool_)
        return np.isin(chosen, smallest(self._search.relaxation.reduced_cost_use, chosen, _AWAKE))

    def _value(self, candidate: IntArray, replicas: FloatArray, rented: FloatArray, claimed: float) -> float:
        """What a fleet is worth that is better than the incumbent, which it becomes; inf for all others."""
        search, polytope = self._search, self._search.polytope
        room = ROUNDING * np.maximum(np.abs(polytope.limit), 1.0)
        with np.errstate(invalid="ignore"):
            taken = polytope.use[:, candidate] @ replicas + polytope.rent @ rented
            if (taken > polytope.limit + room).any():
                return np.inf  # the tableau's rounding
        before = search.value
        carried = self._bounds.tighten(candidate, replicas, claimed)
        adopt(search, self._bounds, candidate, replicas.astype(np.int64), rented.astype(np.int64), carried)
        return search.value if search.value < before else np.inf

    def _rounded(self, candidate: IntArray, replicas: FloatArray, cutoff: float) -> list[RoundingCut]:
        """What whole replicas keep that carry as much as plans better than the cutoff do, and these break."""
        goal = self._search.goal
        least = goal.lam_lower
        if goal.lam_weight < 0 and np.isfinite(cutoff) and (goal.use_cost >= 0).all():
            least = max(least, cutoff / goal.lam_weight)
        self._of_workloads = self._of_workloads or self._bounds.of_workloads()
        return rounding_cuts([*self._of_workloads, *self._bounds.rows], candidate, replicas, least)

    def _told(
        self,
        value: float,
        known: int,
        chosen: IntArray,
        hulls: Sequence[FloatArray] = (),
        rounded: Sequence[RoundingCut] = (),
    ) -> Told:
        """With the inequalities after the first `known`."""
        return Told(value, *self._rows_of(chosen, self._bounds.rows[known:], hulls, rounded))

    def _rows_of(
        self,
        chosen: IntArray,
        inequalities: Sequence[FleetRow],
        hulls: Sequence[FloatArray],
        rounded: Sequence[RoundingCut],
    ) -> tuple[FloatArray, FloatArray]:
        """Rows over lam, machines [K] and replicas [chosen], and what those are at most."""
        lines = [(row.lam, -row.earned[chosen]) for row in inequalities]
        lines += [(0.0, hull[chosen]) for hull in hulls]
        lines += [(0.0, -cut.left(chosen)) for cut in rounded]
        sides = [*(-row.fixed for row in inequalities), *(1.0 for _ in hulls), *(-cut.right for cut in rounded)]
        rows = np.zeros((len(lines), self._first + len(chosen)))
        for row, (of_lam, of_replicas) in zip(rows, lines, strict=True):
            row[0], row[self._first :] = of_lam, of_replicas
        return rows, np.array(sides)


def counts_of(polytope: Polytope, chosen: IntArray) -> CountArray:
    """[counts, 1 + K + chosen] sums of columns (lam, machines, replicas) that fleets are told apart by beside single
    ones: all replicas; of every supply row its GPUs, and replicas with at least so many of them; replicas over two of
    the rows; of every model and role. Sums of machines, of which any is as good as another, tell too little apart."""
    candidates = polytope.candidates
    supply = [row for row, name in enumerate(polytope.resources) if name.startswith("supply/")]
    gpus = np.round(polytope.use[supply][:, chosen].toarray())
    gpus = gpus[gpus.any(axis=1)]
    counts = [np.ones(len(chosen))]
    for row in gpus:
        counts += [row, *(row >= size for size in np.unique(row[row > 0]))]
    counts += [(one > 0) & (other > 0) for one, other in combinations(gpus, 2)]
    serves = np.column_stack([candidates.model[chosen], polytope.rate[chosen] > 0])
    served, kind = np.unique(serves, axis=0, return_inverse=True)
    kinds = [kind.reshape(-1) == number for number in range(len(served))]
    counts += [*kinds, *((row > 0) & one for row in gpus for one in kinds)]
    counts += [candidates.role[chosen] == role for role in np.unique(candidates.role[chosen])]
    counts += [candidates.model[chosen] == model for model in np.unique(candidates.model[chosen])]
    distinct = dict.fromkeys(np.asarray(one, dtype=np.int16).tobytes() for one in counts if one.any())
    of_replicas = np.frombuffer(b"".join(distinct), dtype=np.int16).reshape(len(distinct), len(chosen))
    return np.pad(of_replicas, ((0, 0), (1 + len(polytope.cost_rent), 0)))
