"""The most that replicas carry between them, by a program of its own."""

from collections import Counter
from collections.abc import Collection, Mapping
from math import inf

import highspy

from sutler.solver.throughput import max_load_fraction
from sutler.solver.verify.view import PlanView


def most_carried(
    view: PlanView,
    rates: Mapping[str, Mapping[str, float]],
    demand: Mapping[tuple[str, str], float],
    *,
    without: Collection[str] = (),
) -> float:
    """The largest multiple of a demand by (model, workload) that some routing carries; `without`: replicas left out.

    `rates`: by replica and workload, of replicas that serve whole requests up to the loads that the caller allows,
    latency limits aside, since they depend on the routing. Replicas alike count as one.
    """
    replicas = (replica for replica in view.plan.replicas if replica.id not in without)
    alike = Counter((replica.model, tuple(rates[replica.id].items())) for replica in replicas)
    columns = [(k, model, name, rps) for k, (model, own) in enumerate(alike) for name, rps in own if rps > 0]
    rows = {key: row for row, key in enumerate(demand)}
    room = [count * max_load_fraction(view.problem, view.models[model]) for (model, _), count in alike.items()]
    if rows.keys() - {(model, name) for _, model, name, _ in columns}:
        return 0.0
    # Column 0 is the multiple, the others are replicas of a kind that a workload takes; rows: demands, then kinds.
    scale, count = max(demand.values()), len(rows)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = count + len(room), 1 + len(columns)
    program.col_cost_ = [-1.0, *[0.0] * len(columns)]
    program.col_lower_, program.col_upper_ = [0.0] * program.num_col_, [inf] * program.num_col_
    program.row_lower_, program.row_upper_ = [0.0] * count + [-inf] * len(room), [0.0] * count + room
    matrix = program.a_matrix_
    matrix.num_row_, matrix.num_col_ = program.num_row_, program.num_col_
    matrix.start_ = [0, *range(count, count + 2 * len(columns) + 1, 2)]
    matrix.index_ = [*range(count), *(at for k, model, name, _ in columns for at in (rows[model, name], count + k))]
    matrix.value_ = [
        *(-rps / scale for rps in demand.values()),
        *(v for *_, rps in columns for v in (rps / scale, 1.0)),
    ]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(program)
    solver.run()
    solved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getSolution().col_value[0]) if solved else 0.0
