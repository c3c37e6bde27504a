"""Linear and mixed-integer programs as sparse arrays, and the two solvers behind them.

LPs go to HiGHS through its own package, which takes sparse arrays as they are and returns all duals; MILPs go to
HiGHS through OR-Tools MathOpt, fed as one protocol buffer, since its Python builder is slow above some 10^5 terms.
Both are deterministic: one thread, a fixed seed, and limits on nodes; the clock only stops what hangs.
"""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock, local
from typing import Final, Literal

import highspy
import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt
from ortools.math_opt.solvers import highs_pb2
from scipy.sparse import csr_array

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.errors import EngineError
from sutler.solver.polytope.sparse import spread

_LARGE = 100.0  # coefficients up to this, or down to its inverse, leave HiGHS's tolerances (1e-7) their meaning

_NO_SOLUTION = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)

MilpStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """minimise cost @ x  subject to  row_lower <= matrix @ x <= row_upper,  lower <= x <= upper.

    Raises ValueError for arrays of other lengths than the matrix has: HiGHS would read beyond their ends.
    """

    cost: FloatArray  # [num_columns]
    matrix: csr_array  # [num_rows, num_columns]
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        lengths = {"cost": columns, "lower": columns, "upper": columns, "integer": columns}
        lengths |= {"row_lower": rows, "row_upper": rows}
        wrong = [name for name, length in lengths.items() if len(getattr(self, name)) != length]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: expected {columns} columns and {rows} rows")


@dataclass(frozen=True, slots=True)
class LpSolution:
    """`row_duals` [num_rows]: change of the minimum per unit of the binding side; `x` None: infeasible."""

    x: FloatArray | None
    objective: float
    row_duals: FloatArray


@dataclass(frozen=True, slots=True)
class MilpSolution:
    """`x` None: no solution found. `bound` is a proven lower limit of the minimum (inf when infeasible)."""

    status: MilpStatus
    x: FloatArray | None
    objective: float
    bound: float


def solve_lp(program: LinearProgram) -> LpSolution:
    """The LP relaxation of a program, with duals. An unbounded program is a defect of the caller.

    Each side of a row that has two is a row of its own, `<=` before `=`, so that HiGHS tells their duals apart.
    """
    row_scale, cost_scale = _scales(program)
    row_lower, row_upper = program.row_lower * row_scale, program.row_upper * row_scale
    equal = program.row_lower == program.row_upper
    upper = np.flatnonzero(np.isfinite(row_upper) & ~equal)
    lower = np.flatnonzero(np.isfinite(row_lower) & ~equal)
    both = np.flatnonzero(equal)
    sign = np.repeat([1.0, -1.0, 1.0], [len(upper), len(lower), len(both)])
    rows, matrix = np.concatenate([upper, lower, both]), program.matrix
    counts = np.diff(matrix.indptr)[rows]
    places = spread(matrix.indptr[rows], counts)

    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = len(rows), matrix.shape[1]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = np.append(0, np.cumsum(counts)), matrix.indices[places]
    lp.a_matrix_.value_ = matrix.data[places] * np.repeat(sign * row_scale[rows], counts)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost / cost_scale, program.lower, program.upper
    lp.row_lower_ = np.concatenate([np.full(len(upper) + len(lower), -np.inf), row_lower[both]])
    lp.row_upper_ = np.concatenate([row_upper[upper], -row_lower[lower], row_upper[both]])

    solver = _LP.solver
    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status in _NO_SOLUTION:
        return LpSolution(None, np.inf, np.zeros(0))
    if status == highspy.HighsModelStatus.kMemoryLimit:
        raise MemoryError
    if status != highspy.HighsModelStatus.kOptimal:
        raise EngineError(f"HiGHS ended a linear program with: {solver.modelStatusToString(status)}")
    solution, objective = solver.getSolution(), solver.getInfo().objective_function_value
    solver.clearModel()  # which may be large
    duals = np.zeros(len(row_scale))
    of_upper, of_lower, of_both = np.split(np.array(solution.row_dual), [len(upper), len(upper) + len(lower)])
    duals[upper] += of_upper
    duals[lower] -= of_lower
    duals[both] = of_both
    return LpSolution(np.array(solution.col_value), objective * cost_scale, duals * row_scale * cost_scale)


def _scales(program: LinearProgram) -> tuple[FloatArray, float]:
    """What each row is multiplied by and the objective divided by so that their largest coefficients are 1: HiGHS's
    tolerances are absolute, prices and watts are not. Rows whose coefficients are counts already are left alone."""
    matrix = program.matrix
    largest, filled = np.zeros(matrix.shape[0]), np.diff(matrix.indptr) > 0
    if filled.any():
        largest[filled] = np.maximum.reduceat(np.abs(matrix.data), matrix.indptr[:-1][filled])
    far = (largest > _LARGE) | ((largest > 0) & (largest < 1 / _LARGE))
    row_scale = np.where(far, 1.0 / np.where(largest > 0, largest, 1.0), 1.0)
    return row_scale, float(np.abs(program.cost).max(initial=0.0)) or 1.0


class _OfThread(local):
    """HiGHS by the dual simplex method on one thread, without a word on standard output: made once for each thread,
    since making one takes as long as a small program. A model that it is passed takes the place of the one before
    with all that was found of it."""

    def __init__(self) -> None:
        options = highspy.HighsOptions()
        options.output_flag = False
        options.solver = "simplex"
        options.simplex_strategy = 1  # dual, serial
        options.presolve = "on"
        self.solver = highspy.Highs()
        self.solver.passOptions(options)


def solve_milp(
    program: LinearProgram,
    *,
    relative_gap: float,
    time_limit_s: float,
    node_limit: int | None = None,
    heuristic_effort: float = 0.05,
) -> MilpSolution:
    """The MILP to `relative_gap`, or as far as the limits allow.

    `heuristic_effort` is the share of the search that goes into heuristics (HiGHS's own default 0.05).
    There is no way to hand in a first solution: given one, HiGHS (in OR-Tools 9.15) was seen to call it optimal
    with a bound that a better solution refutes.
    """
    row_scale, cost_scale = _scales(program)
    model = mathopt.Model.from_model_proto(_to_proto(program, row_scale, cost_scale))
    parameters = mathopt.SolveParameters(
        relative_gap_tolerance=relative_gap,
        absolute_gap_tolerance=0.0,
        time_limit=timedelta(seconds=max(time_limit_s, 0.01)),
        node_limit=node_limit,
        random_seed=0,
        highs=_highs_options(heuristic_effort),
    )
    with _MUTED:
        try:
            result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters)
        except (AttributeError, RuntimeError, ValueError) as error:  # MathOpt 9.15 fails to convert HiGHS's status
            raise EngineError(f"HiGHS failed: {error.__context__ or error}") from error
    bound = float(result.termination.objective_bounds.dual_bound) * cost_scale
    reason = result.termination.reason
    if not result.solutions or result.solutions[0].primal_solution is None:
        infeasible = reason in (
            mathopt.TerminationReason.INFEASIBLE,
            mathopt.TerminationReason.INFEASIBLE_OR_UNBOUNDED,
        )
        return MilpSolution("infeasible" if infeasible else "unknown", None, np.inf, np.inf if infeasible else bound)
    primal = result.solutions[0].primal_solution
    values = primal.variable_values
    x = np.fromiter((values[variable] for variable in model.variables()), dtype=np.float64, count=len(program.cost))
    x[program.integer] = np.round(x[program.integer])
    status: MilpStatus = "optimal" if reason == mathopt.TerminationReason.OPTIMAL else "feasible"
    return MilpSolution(status, x, float(primal.objective_value) * cost_scale, bound)


def _highs_options(heuristic_effort: float) -> highs_pb2.HighsOptionsProto:
    """Restarts cost more than they bring on these programs: without them they end in half the time."""
    options = highs_pb2.HighsOptionsProto()
    options.bool_options["mip_allow_restart"] = False
    options.double_options["mip_heuristic_effort"] = heuristic_effort
    return options


class _Muted:
    """While any thread solves, file descriptor 1 leads nowhere: HiGHS prints debugging lines on it whatever it is
    told, and a plan there must stay clean JSON."""

    def __init__(self) -> None:
        self._lock, self._solving, self._kept = Lock(), 0, -1

    def __enter__(self) -> None:
        with self._lock:
            if self._solving == 0:
                sys.stdout.flush()
                self._kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.close(nowhere)
            self._solving += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._solving -= 1
            if self._solving == 0:
                os.dup2(self._kept, 1)
                os.close(self._kept)


_MUTED: Final = _Muted()
_LP: Final = _OfThread()


def _to_proto(program: LinearProgram, row_scale: FloatArray, cost_scale: float) -> model_pb2.ModelProto:
    proto = model_pb2.ModelProto()
    num_rows, num_columns = program.matrix.shape
    variables = proto.variables
    variables.ids.extend(range(num_columns))
    variables.lower_bounds.extend(program.lower)
    variables.upper_bounds.extend(program.upper)
    variables.integers.extend(program.integer.tolist())
    used = np.flatnonzero(program.cost)
    proto.objective.linear_coefficients.ids.extend(used)
    proto.objective.linear_coefficients.values.extend(program.cost[used] / cost_scale)
    rows = proto.linear_constraints
    rows.ids.extend(range(num_rows))
    rows.lower_bounds.extend(program.row_lower * row_scale)
    rows.upper_bounds.extend(program.row_upper * row_scale)
    entries = proto.linear_constraint_matrix
    counts = np.diff(program.matrix.indptr)
    entries.row_ids.extend(np.repeat(np.arange(num_rows), counts))
    entries.column_ids.extend(program.matrix.indices)
    entries.coefficients.extend(program.matrix.data * np.repeat(row_scale, counts))
    return proto
