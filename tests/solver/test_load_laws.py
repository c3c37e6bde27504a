"""Plans of problems that allow more are no worse: some of what `python -m benchmarks.load_laws` looks at; and tiny
markets by brute force over layouts, caps and loads."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load_laws import violations
from sutler.solver import solve
from sutler.solver.problem import LatencyLimit, Objective, ObjectiveKind, Problem, Search, ServedModel
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.verify import verify
from tests.builders import a_problem, an_offer, measured
from tests.looped import for_each
from tests.solver.brute_force import optimum
from tests.solver.throughput.builders import pipelines_of, served

LINK_GB_PER_S = 26.0
LAYOUTS = (("l40s", 1), ("l40s", 2), ("h100-sxm", 1))


@pytest.mark.slow
@for_each("seed", [0, 33])
def test_what_allows_less_is_never_better(seed: int) -> None:
    """33: prefill and decode over thin links, which keep replicas busy for longer than their GPUs do."""
    assert violations(seed)[1] == []


def a_market(objective: ObjectiveKind, slo: tuple[LatencyLimit, ...]) -> Problem:
    model = served("llama-3-8b", (1500, 200), slo=slo)
    demand = replace(model.workloads[0], demand=9.0)
    return a_problem(
        objective=objective,
        models=[replace(model, workloads=(demand,))],
        offers=[
            an_offer("l40s", 2, price=1.6, available=2, divisible=True, intra_machine_gb_per_s=LINK_GB_PER_S),
            an_offer("h100-sxm", 1, price=2.6, available=2, intra_machine_gb_per_s=LINK_GB_PER_S),
        ],
        gpus=pipelines_of([("l40s", 1)], [("h100-sxm", 1)]).gpus,
        measured_only=False,
        budget_usd_per_hour=5.0 if objective == "max_throughput" else None,
        search=Search(max_pipeline_stages=1),
    )


def as_measured(problem: Problem) -> Problem:
    """The most that any cap from 1 to 256 carries of the one workload, at the largest load that keeps the limits."""
    model, roofline, caps = problem.models[0], Roofline(), np.arange(1, MAX_SEQUENCES + 1)
    rows = []
    for gpu, degree in LAYOUTS:
        layouts = pipelines_of([(gpu, degree)], intra_gb_per_s=LINK_GB_PER_S).take(
            np.zeros(len(caps), dtype=np.int64)
        )
        full = roofline.rates(model, layouts, caps=caps).rps
        ceiling = roofline.ceilings(model, layouts, caps=caps, rps=full, most_load=1.0)
        rows.append(measured(f"{gpu}:{degree}", {"w0": float((full[:, 0] * ceiling).max())}))
    free = replace(model, slo=())
    return replace(problem, models=(free,), measured=tuple(rows), measured_only=True)


@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@pytest.mark.parametrize(
    "slo",
    [
        (LatencyLimit("ttft", 90, 0.8),),
        (LatencyLimit("tpot", 95, 0.035),),
        (LatencyLimit("e2e", 99, 7.0), LatencyLimit("ttft", 50, 0.5)),
    ],
    ids=["ttft", "tpot", "e2e"],
)
def test_brute_force_over_caps_and_loads_finds_the_same(
    objective: ObjectiveKind, slo: tuple[LatencyLimit, ...]
) -> None:
    """1.5 % more at most, since points are sought, and 2 % less, since step times are interpolated."""
    problem = a_market(objective, slo)
    plan = solve(problem)
    assert verify(problem, plan) == ()
    best = optimum(as_measured(problem))
    assert plan.value is not None
    assert best.value is not None
    if objective == "max_throughput":
        assert best.value / 1.015 <= plan.value <= best.value * 1.02
    else:  # a step of the price less where a little less would do
        less = optimum(as_measured(replace(problem, objective=Objective(objective, 0.015)))).value
        more = optimum(as_measured(replace(problem, models=_with_demand(problem, 0.98)))).value
        assert less is not None
        assert more is not None
        assert more * (1 - 1e-6) <= plan.value <= less * (1 + 1e-6)


def _with_demand(problem: Problem, factor: float) -> tuple[ServedModel, ...]:
    (model,) = problem.models
    return (replace(model, workloads=tuple(replace(w, demand=w.demand * factor) for w in model.workloads)),)
