"""The tree against HiGHS: the same best values, bounds that hold, and honest ends."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.polytope.linear import LinearProgram, solve_milp
from sutler.solver.tree import IS_BUILT, Outcome, Place, Told, search
from tests.looped import for_each

GAP = 1e-6

pytestmark = pytest.mark.skipif(not IS_BUILT, reason="the tree was not compiled: `make install` where g++ is")


def a_program(seed: int) -> LinearProgram:
    """Few rows, many columns, some with two sides; a third without whole numbers, some degenerate, empty or of rows
    and costs that are nine orders of magnitude apart."""
    draw = np.random.default_rng(seed)
    columns, rows = int(draw.integers(1, 40)), int(draw.integers(1, 12))
    matrix = draw.integers(-2, 9, (rows, columns)) * (draw.random((rows, columns)) < 0.5) * 1.0
    upper = draw.integers(0, 7, columns) * 1.0
    most = matrix @ (upper * draw.random(columns)) * draw.random()
    if seed % 5 == 0:
        most, matrix = np.zeros(rows), np.repeat(matrix[:1], rows, axis=0)
    least = np.where(draw.random(rows) < 0.2, most - draw.integers(2, 30, rows), -np.inf)
    cost = draw.normal(size=columns) if seed % 2 else -draw.integers(0, 20, columns) * 1.0
    if seed % 7 == 0:
        by = 10.0 ** draw.uniform(-4, 5, rows)
        matrix, least, most = matrix * by[:, None], least * by, most * by
        cost = cost * 10.0 ** draw.uniform(-4, 5)
    integer = np.ones(columns, dtype=np.bool_)
    integer[: (seed % 3) * columns // 3] = False
    least, most, upper, cost = (np.asarray(one, dtype=np.float64) for one in (least, most, upper, cost))
    return LinearProgram(cost, csr_array(matrix), least, most, np.zeros(columns), upper, integer)


def searched(
    program: LinearProgram,
    *,
    most_nodes: int = 3_000,
    is_awake: BoolArray | None = None,
    goes_on: Callable[[float, int], bool] = lambda bound, nodes: True,
) -> tuple[float, Outcome]:
    """The best value that was told, and the outcome."""
    best, rows = [np.inf], program.matrix.toarray()
    size = np.maximum(np.abs(rows).max(axis=1), 1e-300)

    def tell(point: FloatArray, place: Place) -> Told:
        left, right = rows @ point - program.row_upper, program.row_lower - rows @ point
        is_plan = place == "plan" and (np.maximum(left, right) <= 1e-6 * size).all()
        value = float(program.cost @ point) if is_plan else np.inf
        best[0] = min(best[0], value)
        return Told(value, np.zeros((0, len(point))), np.zeros(0))

    found = search(
        program,
        np.atleast_2d(program.integer).astype(np.int16),
        cutoff=np.inf,
        gap=GAP,
        most_nodes=most_nodes,
        root_rounds=0,
        separate=tell,
        goes_on=goes_on,
        is_awake=is_awake,
    )
    return best[0], found


def some_awake(program: LinearProgram, seed: int) -> BoolArray:
    """From none to half of the whole numbers, and all others."""
    draw = np.random.default_rng(seed)
    return np.asarray(~program.integer | (draw.random(len(program.cost)) < draw.choice([0.0, 0.1, 0.5])))


@for_each("seed", range(1_000), quick=80)
def test_the_best_values_are_those_of_highs(seed: int) -> None:
    program, told = a_program(seed), [-np.inf]

    def goes_on(bound: float, nodes: int) -> bool:
        told.append(bound)
        return True

    truth = solve_milp(program, relative_gap=1e-9, time_limit_s=60.0, node_limit=None)
    best = truth.objective if truth.x is not None else np.inf
    room = 2 * GAP * max(abs(best), float(np.abs(program.cost).max())) if np.isfinite(best) else 0.0
    for is_awake in (None, some_awake(program, seed)):
        value, found = searched(program, goes_on=goes_on, is_awake=is_awake)
        assert max(*told, found.bound) <= best + room
        if found.has_ended:
            assert value == best or abs(value - best) <= room


def test_most_searches_end_whatever_sleeps_at_first() -> None:
    programs = [a_program(seed) for seed in range(200)]
    ends = [searched(program)[1].has_ended for program in programs]
    assert sum(ends) >= 195
    ends = [searched(one, is_awake=some_awake(one, seed))[1].has_ended for seed, one in enumerate(programs)]
    assert sum(ends) >= 195


def a_market(seed: int) -> LinearProgram:
    """Replicas on 1, 2 or 4 GPUs of six pools, of fifteen machines each that are rented one by one for a budget."""
    draw, (pools, machines, kinds) = np.random.default_rng(seed), (6, 15, 3)
    size = 2.0 ** draw.integers(0, 3, (pools, machines))
    price = size * draw.uniform(0.9, 1.3, (pools, machines)) * draw.uniform(0.5, 2, (pools, 1))
    gpus = 2.0 ** np.arange(kinds)
    rate = (
        gpus * draw.uniform(0.8, 1.2, (pools, kinds)) * price.mean(axis=1, keepdims=True) / size.mean(axis=1)[:, None]
    )
    rented, columns = pools * machines, pools * (machines + kinds)
    of_pool = [np.hstack([np.kron(row, -size[p]), np.kron(row, gpus)]) for p, row in enumerate(np.eye(pools))]
    rows = np.vstack([np.append(price.ravel(), np.zeros(columns - rented)), *of_pool])
    return LinearProgram(
        cost=np.append(np.zeros(rented), -rate.ravel()),
        matrix=csr_array(rows),
        row_lower=np.full(len(rows), -np.inf),
        row_upper=np.append(price.sum() / 3, np.zeros(pools)),
        lower=np.zeros(columns),
        upper=np.append(np.ones(rented), np.full(columns - rented, 60.0)),
        integer=np.ones(columns, dtype=np.bool_),
    )


@for_each("seed", range(60), quick=12)  # 9: branched on a point that was none for ever
def test_what_nodes_branch_on_keeps_rows_and_bounds_and_searches_end(seed: int) -> None:
    program, counts = a_market(seed), np.zeros((2, 108), dtype=np.int16)
    counts[0, :90] = counts[1, 90:] = 1
    rows, beyond = program.matrix.toarray(), [0.0]

    def tell(point: FloatArray, place: Place) -> Told:
        worst = float((rows @ point - program.row_upper).max())
        if place != "plan":
            beyond.append(max(worst, float((program.lower - point).max()), float((point - program.upper).max())))
        value = float(program.cost @ point) if place == "plan" and worst < 1e-6 else np.inf
        return Told(value, np.zeros((0, len(point))), np.zeros(0))

    found = search(
        program,
        counts,
        cutoff=np.inf,
        gap=1e-3,
        most_nodes=5_000,
        root_rounds=0,
        separate=tell,
        goes_on=lambda bound, nodes: True,
    )
    assert found.has_ended
    assert len(beyond) > 1
    assert max(beyond) < 1e-6


def hard() -> LinearProgram:
    """A market split (Cornuejols & Dawande, IPCO 1998): all plans look alike."""
    draw = np.random.default_rng(5)
    weights = draw.integers(0, 100, (3, 24)) * 1.0
    half = np.floor(weights.sum(axis=1) / 2)
    slack = np.hstack([np.eye(3), -np.eye(3)])
    return LinearProgram(
        cost=np.concatenate([np.zeros(24), np.ones(6)]),
        matrix=csr_array(np.hstack([weights, slack])),
        row_lower=half,
        row_upper=half,
        lower=np.zeros(30),
        upper=np.concatenate([np.ones(24), np.full(6, 1e4)]),
        integer=np.arange(30) < 24,
    )


def test_limits_leave_a_bound_that_holds_and_the_same_end_every_time() -> None:
    first, second = (searched(hard(), most_nodes=200) for _ in range(2))
    assert first == second
    assert not first[1].has_ended
    assert first[1].bound + 1e-6 >= 0.0
    assert first[1].bound < first[0]
    _, found = searched(hard(), most_nodes=10**9, goes_on=lambda bound, nodes: nodes < 50)
    assert not found.has_ended
    assert 50 <= found.nodes < 1_000


def test_a_cut_is_kept_and_a_plan_moves_the_cutoff() -> None:
    """max x + y, 2 x + 2 y <= 7: 3, unless a cut says 2."""
    ones = np.ones(2)
    program = LinearProgram(
        -ones,
        csr_array(2 * ones[None]),
        np.full(1, -np.inf),
        np.full(1, 7.0),
        0 * ones,
        9 * ones,
        np.ones(2, np.bool_),
    )
    asked: list[tuple[FloatArray, bool]] = []

    def tell(point: FloatArray, place: Place) -> Told:
        asked.append((point, place == "plan"))
        if point.sum() > 2.5:
            return Told(np.inf, ones[None], np.full(1, 2.0))
        return Told(-float(point.sum()) if place == "plan" else np.inf, np.zeros((0, 2)), np.zeros(0))

    found = search(
        program,
        np.ones((1, 2), dtype=np.int16),
        cutoff=np.inf,
        gap=GAP,
        most_nodes=99,
        root_rounds=3,
        separate=tell,
        goes_on=lambda bound, nodes: True,
    )
    assert not asked[0][1]
    assert found.has_ended
    assert found.bound == pytest.approx(-2.0, rel=2 * GAP)


def test_nothing_is_below_a_cutoff_that_is_the_best_value() -> None:
    program = a_program(1)
    value, _ = searched(program)
    found = search(
        program,
        np.zeros((0, len(program.cost)), dtype=np.int16),
        cutoff=value - 1e-4,
        gap=GAP,
        most_nodes=3_000,
        root_rounds=0,
        separate=lambda point, place: pytest.fail("there is no such point"),
        goes_on=lambda bound, nodes: True,
    )
    assert (found.has_ended, found.bound) == (True, value - 1e-4)


def test_what_the_caller_raises_comes_through() -> None:
    def tell(point: FloatArray, place: Place) -> Told:
        raise RuntimeError("no more of this")

    program = a_program(1)
    with pytest.raises(RuntimeError, match="no more of this"):
        search(
            program,
            np.zeros((0, len(program.cost)), dtype=np.int16),
            cutoff=np.inf,
            gap=GAP,
            most_nodes=9,
            root_rounds=1,
            separate=tell,
            goes_on=lambda bound, nodes: True,
        )


def test_what_is_no_number_is_refused() -> None:
    program = a_program(1)
    spoilt = program.matrix.copy()
    spoilt.data[0] = np.nan
    with pytest.raises(ValueError, match="matrix: not a finite number"):
        searched(replace(program, matrix=spoilt))
    with pytest.raises(ValueError, match="cost: not a number"):
        searched(replace(program, cost=program.cost * np.nan))
    with pytest.raises(ValueError, match="is_awake: what sleeps is a whole number from 0 to some bound"):
        searched(replace(program, lower=program.lower - 1), is_awake=np.zeros(len(program.cost), dtype=np.bool_))
    with pytest.raises(ValueError, match=f"counts: expected lines of {len(program.cost)} numbers"):
        search(
            program,
            np.zeros((1, 1), dtype=np.int16),
            cutoff=np.inf,
            gap=GAP,
            most_nodes=9,
            root_rounds=0,
            separate=lambda point, place: Told(np.inf, np.zeros((0, 1)), np.zeros(0)),
            goes_on=lambda bound, nodes: True,
        )
