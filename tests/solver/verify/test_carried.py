"""What replicas carry at most is that of SciPy's program, also where demands and rates are orders of magnitude apart:
a solver that gives up there would have true plans rejected."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from sutler.solver.throughput import max_load_fraction
from sutler.solver.verify.carried import most_carried
from sutler.solver.verify.view import view_of
from tests.looped import for_each
from tests.solver.verify.test_loads import a_case


@for_each("seed", range(400))
def test_the_most_is_that_of_another_program(seed: int) -> None:
    problem, plan = a_case()
    [model], draw = problem.models, np.random.default_rng(seed)
    kinds, workloads = (int(count) for count in draw.integers(1, 11, size=2))
    requests = 10 ** draw.uniform(-6, 3, workloads)
    rps = 10 ** draw.uniform(-4, 3, (kinds, workloads)) * (draw.random((kinds, workloads)) < 0.6)
    rps[0] = np.maximum(rps[0], 1e-3)  # something serves everything
    replicas = [replace(plan.replicas[0], id=f"{kind}") for kind in range(kinds)]
    view = replace(view_of(problem, plan), plan=replace(plan, replicas=tuple(replicas)))
    rates = {f"{kind}": {f"w{w}": float(rps[kind, w]) for w in range(workloads)} for kind in range(kinds)}
    found = most_carried(view, rates, {(model.name, f"w{w}"): float(requests[w]) for w in range(workloads)})
    serves = np.hstack([-requests[:, None], *(np.diag(row) for row in rps)])
    works = np.hstack([np.zeros((kinds, 1)), np.kron(np.eye(kinds), np.ones(workloads))])
    room = np.full(kinds, max_load_fraction(problem, model))
    solved = linprog(
        [-1.0, *np.zeros(kinds * workloads)],
        A_ub=works,
        b_ub=room,
        A_eq=serves / requests.max(),
        b_eq=np.zeros(workloads),
        method="highs",
    )
    assert found == pytest.approx(float(solved.x[0]), rel=1e-6)
