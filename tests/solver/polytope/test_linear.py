"""Linear programs and their matrices: solutions and duals that are known, and what has none."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import block_array, csr_array

from sutler.solver.errors import EngineError
from sutler.solver.polytope.linear import LinearProgram, solve_lp, solve_milp
from sutler.solver.polytope.sparse import column_of, diagonal, entries_of, ones, stacked


def a_program(
    rows: list[list[float]], row_lower: list[float], row_upper: list[float], cost: list[float]
) -> LinearProgram:
    """All columns are at least 0."""
    width = len(cost)
    return LinearProgram(
        cost=np.array(cost),
        matrix=csr_array(np.array(rows)),
        row_lower=np.array(row_lower),
        row_upper=np.array(row_upper),
        lower=np.zeros(width),
        upper=np.full(width, np.inf),
        integer=np.zeros(width, dtype=np.bool_),
    )


def test_each_side_of_each_row_has_its_dual() -> None:
    """minimise 2 x + 3 y + z with x + y = 4, 1 <= y <= 9, 5 <= x + z: x = 3, y = 1, z = 2.

    One more of the first row is an x for a z (2 - 1), of the second a y and a z for an x
    (3 + 1 - 2), of the third a z.
    """
    rows = [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    found = solve_lp(a_program(rows, [4.0, 1.0, 5.0], [4.0, 9.0, np.inf], [2.0, 3.0, 1.0]))
    assert found.x is not None
    assert found.x.tolist() == pytest.approx([3.0, 1.0, 2.0])
    assert found.objective == pytest.approx(11.0)
    assert found.row_duals.tolist() == pytest.approx([1.0, 2.0, 1.0])


def test_the_dual_of_an_upper_side_is_what_more_of_it_saves() -> None:
    found = solve_lp(a_program([[1.0, 2.0]], [-np.inf], [10.0], [-1.0, -1.0]))
    assert found.objective == pytest.approx(-10.0)
    assert found.row_duals.tolist() == pytest.approx([-1.0])


@pytest.mark.parametrize("name", ["cost", "lower", "upper", "integer", "row_lower", "row_upper"])
def test_arrays_that_are_shorter_or_longer_than_the_matrix_never_reach_the_solver(name: str) -> None:
    """It takes pointers, and would read beyond their ends."""
    program = a_program([[1.0, 2.0]], [-np.inf], [10.0], [-1.0, -1.0])
    for length in (0, 3):
        other: dict[str, Any] = {name: np.zeros(length)}
        with pytest.raises(ValueError, match=f"{name}: expected 2 columns and 1 rows"):
            replace(program, **other)


def test_what_cannot_be_has_no_solution() -> None:
    assert solve_lp(a_program([[1.0], [1.0]], [2.0, -np.inf], [np.inf, 1.0], [1.0])).x is None


def test_a_program_without_an_end_is_no_infeasible_one() -> None:
    """As it was built wrong, nothing follows from it, and surely no proof that there is no fleet."""
    with pytest.raises(EngineError, match=r"[Uu]nbounded"):
        solve_lp(a_program([[1.0, -1.0]], [-np.inf], [1.0], [-1.0, -1.0]))


def test_blocks_stand_where_they_are_put() -> None:
    full = csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    column, members = np.array([0.0, 4.0]), ones(np.array([0, 0]), np.array([0, 2]), 1)
    found = stacked((1, 3, 2), [[column_of(column), entries_of(full), None], [None, members, None]])
    expected = block_array(
        [
            [csr_array(column[:, None]), full, csr_array((2, 2))],
            [None, csr_array(np.array([[1.0, 0.0, 1.0]])), None],
        ]
    )
    assert np.array_equal(found.toarray(), expected.toarray())
    square = stacked((2,), [[diagonal(np.array([5.0, 6.0]))]])
    assert square.toarray().tolist() == [[5.0, 0.0], [0.0, 6.0]]
    assert stacked((3,), [[members.transposed(3)]]).toarray()[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_several_threads_solve_at_once_and_what_is_printed_afterwards_is_seen(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def knapsack(room: float) -> float:
        program = a_program([[5.0, 7.0, 11.0, 13.0]], [-np.inf], [room], [-9.0, -13.0, -21.0, -25.0])
        whole = replace(program, upper=np.full(4, 3.0), integer=np.ones(4, dtype=np.bool_))
        return solve_milp(whole, relative_gap=0.0, time_limit_s=60.0).objective

    rooms = [float(room) for room in range(10, 70)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(knapsack, rooms))
    os.write(1, b"seen")
    assert capfd.readouterr().out == "seen"
    assert found == [knapsack(room) for room in rooms]
