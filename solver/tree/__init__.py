"""Branch and cut over fleets, compiled: what a MILP over few rows and many whole replica counts is searched by.

Flow: methods/fleets_by_tree.py, which makes the program and its counts -> search (here) -> module.cpp -> tree.hpp.

Where it was not compiled, `IS_BUILT` is False and methods/exact.py has HiGHS search instead: slower, to the same gap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.polytope.linear import LinearProgram

try:
    from sutler.solver.tree import _tree

    IS_BUILT = True
except ImportError:  # installed where there is no compiler
    IS_BUILT = False

Place = Literal["root", "node", "plan"]
_PLACES: Final[tuple[Place, ...]] = ("root", "node", "plan")  # as tree.hpp numbers them
CountArray = NDArray[np.int16]  # whole coefficients, of many columns

# Costs are moved by about as much of the largest one, each by another amount: alike columns would make the simplex
# cycle. With five times as much, points as good as the best one were told apart for ever at gaps of 1e-6.
_TILT: Final = 2e-9


@dataclass(frozen=True, slots=True)
class Told:
    """What a point [num_columns] taught: its value where it is a plan (inf: it is none), and rows that every plan
    keeps and it may break, `cuts @ x <= most`."""

    value: float
    cuts: FloatArray  # [num_cuts, num_columns]
    most: FloatArray  # [num_cuts]


@dataclass(frozen=True, slots=True)
class Outcome:
    """bound: no plan is below it; inf: there is none. has_ended: all that is below the cutoff was searched, so that
    the bound is the cutoff itself. nodes, problems: branched on, and linear programs solved."""

    bound: float
    has_ended: bool
    nodes: int
    problems: int


def search(
    program: LinearProgram,
    counts: CountArray,
    *,
    cutoff: float,
    gap: float,
    most_nodes: int,
    root_rounds: int,
    separate: Callable[[FloatArray, Place], Told],
    goes_on: Callable[[float, int], bool],
    is_awake: BoolArray | None = None,
) -> Outcome:
    """Search the plans of a program whose value is below `cutoff`; each that is found moves the cutoff to a share
    `gap` of its value below it.

    counts [num_counts, num_columns]: whole sums of columns that are branched on first. separate: is asked about the
    point of the root in up to `root_rounds` rounds, about those of some nodes now and then, and about every point of
    whole numbers that the tree comes to, which may be a plan. goes_on: is told the bound and the nodes so far now and
    then, and may end the search. is_awake [num_columns]: what linear programs start with, None: all; the others, of 0
    to finite bounds, join those that need them, which is quicker where most are never needed.
    The outcome is the same on every machine, unless `goes_on` ends it by a clock.
    """
    tilt = (
        np.random.default_rng(0).uniform(0.5, 1.5, len(program.cost)) * _TILT * np.abs(program.cost).max(initial=0.0)
    )

    def told(point: FloatArray, place: int) -> tuple[float, FloatArray, FloatArray]:
        answer = separate(point, _PLACES[place])
        return answer.value, answer.cuts, answer.most

    binding = np.isfinite(program.row_lower) | np.isfinite(program.row_upper)
    found = _tree.search(
        program.cost,
        np.where(program.integer, tilt, 0.0),
        program.lower,
        program.upper,
        program.integer,
        np.ones(len(program.cost)) if is_awake is None else is_awake,
        program.matrix[np.flatnonzero(binding)].toarray(),
        program.row_lower[binding],
        program.row_upper[binding],
        counts,
        _tree.Options(
            cutoff=cutoff,
            gap=gap,
            most_nodes=most_nodes,
            root_rounds=root_rounds,
        ),
        told,
        goes_on,
    )
    return Outcome(found.bound, found.has_ended, found.nodes, found.problems)
