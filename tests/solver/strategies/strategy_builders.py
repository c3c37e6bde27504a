"""What the tests of the strategies share: problems of every kind, and all the time in the world."""

from dataclasses import replace

from solver.catalog import load_gpus, load_models
from solver.problem import ObjectiveKind, Problem, Search
from tests.builders import a_model, a_problem, a_workload, an_offer, melange


def plenty_of_time() -> float:
    return 60.0


def slices_case(objective: ObjectiveKind, *, budget_usd_per_hour: float | None = None) -> Problem:
    """Mélange's input (builders.melange) under any objective."""
    case = melange()
    return replace(case, objective=replace(case.objective, kind=objective), budget_usd_per_hour=budget_usd_per_hour)


def two_models_case(objective: ObjectiveKind) -> Problem:
    """Two models on estimated rates, a site with a network and hosts without one; loads that a part of it carries."""
    return a_problem(
        objective=objective,
        models=[
            a_model(
                a_workload("ask", demand=20.0, input_tokens=1500.0, output_tokens=40.0),
                a_workload("write", demand=10.0, input_tokens=200.0, output_tokens=500.0),
                name="small",
                spec=load_models()["llama-3.1-8b"],
            ),
            a_model(a_workload("ask", demand=5.0), name="large", spec=load_models()["llama-3-70b"]),
        ],
        offers=[
            an_offer("h100-sxm", 8, price=20.0, available=2, site="s", inter_machine_gb_per_s=25.0),
            an_offer("a100-sxm4-80gb", 4, price=6.0, available=4, site="s", inter_machine_gb_per_s=25.0),
            an_offer("l40s", 4, price=3.4, available=4),
            an_offer("l40s", 1, price=0.9, available=6),
        ],
        gpus=[load_gpus()[name] for name in ("h100-sxm", "a100-sxm4-80gb", "l40s")],
        budget_usd_per_hour=45.0,
        search=Search(max_pipeline_stages=2),
        measured_only=False,
    )


def no_time() -> float:
    return 0.0
