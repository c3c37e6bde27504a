"""A workload of which hardly a request comes still gets a replica that serves it."""

from dataclasses import replace

import pytest

from sutler.solver import solve
from sutler.solver.problem import Disaggregation, Problem
from tests.builders import random_estimated_roles_problem


def rare(problem: Problem, rate_rps: float) -> Problem:
    models = tuple(
        replace(model, workloads=tuple(replace(workload, demand=rate_rps) for workload in model.workloads))
        for model in problem.models
    )
    return replace(
        problem,
        models=models,
        objective=replace(problem.objective, kind="min_cost"),
        budget_usd_per_hour=None,
        options=replace(problem.options, alternatives=False),
    )


@pytest.mark.parametrize("disaggregation", ["off", "auto", "only"])
@pytest.mark.parametrize("rate_rps", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-6])
def test_a_request_in_a_week_is_served(rate_rps: float, disaggregation: Disaggregation) -> None:
    served = 0
    for seed in range(4):
        problem = rare(random_estimated_roles_problem(seed), rate_rps)
        plan = solve(replace(problem, search=replace(problem.search, disaggregation=disaggregation)))
        assert plan.status in ("optimal", "infeasible")
        served += plan.status == "optimal"
        assert all(sum(share.fraction for share in route.shares) == pytest.approx(1) for route in plan.routing)
    assert served
