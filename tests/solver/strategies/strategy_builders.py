"""What the tests of the strategies share: problems of every kind, and all the time in the world."""

from dataclasses import replace
from random import Random

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.problem import Limits, MeasuredRate, ObjectiveKind, Problem, Role, Search, SolveOptions
from tests.builders import (
    a_gpu,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    measured,
    melange,
    random_estimated_problem,
)


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


ROLES: tuple[Role, ...] = ("aggregated", "prefill", "decode")


def in_roles(stages: str, prefill: float, decode: float, *workloads: str) -> list[MeasuredRate]:
    """Rows of one layout: prompts/s and answers/s alone, whichever the workload."""
    names = workloads or ("w1",)
    rates: tuple[tuple[Role, float], ...] = (("prefill", prefill), ("decode", decode))
    return [replace(measured(stages, dict.fromkeys(names, rps)), role=role) for role, rps in rates]


def random_roles_case(seed: int, objective: ObjectiveKind) -> Problem:
    """Measured rates in all roles of two GPU types on two networks and off them."""
    draw = Random(seed)
    workloads = [
        a_workload(f"w{n}", demand=draw.uniform(0.2, 2.0), input_tokens=draw.choice([200.0, 2000.0]))
        for n in range(draw.randint(1, 3))
    ]
    rows = [
        replace(
            measured(stages, {w.name: round(draw.uniform(0.4, 2.0) * size, 3) for w in workloads}),
            role=role,
        )
        for stages, size in draw.sample([("a", 1.0), ("a:2", 2.2), ("b", 1.5), ("b:2", 3.2)], 3)
        for role in ROLES
    ]
    offers = [
        an_offer(
            draw.choice("ab"),
            gpus := draw.choice([1, 2, 4]),
            price=round(gpus * draw.uniform(0.7, 2.0), 2),
            available=draw.randint(1, 3),
            offer_id=f"o{number}",
            divisible=draw.random() < 0.2,
            **({"site": draw.choice("st"), "inter_machine_gb_per_s": 12.5} if number < 4 else {}),
        )
        for number in range(draw.randint(3, 6))
    ]
    facts = {"memory_bandwidth_gb_per_s": 2000.0}
    return a_problem(
        objective=objective,
        headroom_fraction=draw.choice([0.0, 0.2]),
        models=[a_model(*workloads)],
        offers=offers,
        rows=rows,
        gpus=[a_gpu(name, peak_tflops_bf16_dense=tflops, **facts) for name, tflops in (("a", 300.0), ("b", 900.0))],
        budget_usd_per_hour=draw.choice([None, 8.0, 14.0]),
        limits=Limits(max_gpus={"a": 5} if draw.random() < 0.3 else {}),
        options=SolveOptions(alternatives=False),
    )


def random_networked_case(seed: int, objective: ObjectiveKind) -> Problem:
    """Estimated rates under limits, everything on networks, with caps where watts count."""
    problem = random_estimated_problem(seed, objective)
    offers = tuple(
        replace(offer, site="s", inter_machine_gb_per_s=offer.inter_machine_gb_per_s or 25.0)
        for offer in problem.offers
    )
    return replace(
        problem,
        offers=offers,
        limits=replace(problem.limits, max_share_per_provider_fraction=1.0),
        search=replace(problem.search, power_caps_fraction=(0.5,)),
        options=SolveOptions(alternatives=False),
    )
