"""The most that replicas carry between them, by a program of its own."""

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
from scipy.optimize import linprog

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
    serves, works = np.zeros((len(rows), 1 + len(columns))), np.zeros((len(alike), 1 + len(columns)))
    serves[:, 0] = [-requests for requests in demand.values()]
    for column, (kind, model, name, rps) in enumerate(columns, start=1):
        serves[rows[model, name], column] = rps
        works[kind, column] = 1.0
    if not columns or not all(serves[row, 1:].any() for row in range(len(rows))):
        return 0.0
    room = [count * max_load_fraction(view.problem, view.models[model]) for (model, _), count in alike.items()]
    scale = max(demand.values())
    objective = np.zeros(1 + len(columns))
    objective[0] = -1.0
    solved = linprog(objective, A_ub=works, b_ub=room, A_eq=serves / scale, b_eq=np.zeros(len(rows)), method="highs")
    return float(solved.x[0]) if solved.status == 0 else 0.0
