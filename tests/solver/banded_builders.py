"""Markets of two GPUs of the same speed: `known`, whose rates are true within 1.2, and `guessed`, within 2."""

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, Literal

import numpy as np

from sutler.solver.calibration.factors import Calibration, shipped_calibration
from sutler.solver.candidates.enumerate import enumerate_candidates
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.market.supply import build_supply
from sutler.solver.problem import (
    Derating,
    LatencyLimit,
    MeasuredRate,
    MeasuredStage,
    ObjectiveKind,
    Problem,
    Search,
    SolveOptions,
)
from tests.builders import a_model, a_problem, a_workload, an_offer

BANDS = {"known": 1.2, "guessed": 2.0}


def calibrated(bands: dict[str, float]) -> Calibration:
    """The shipped calibration, where GPUs of these slugs are like an H100 but for their bands."""
    shipped = shipped_calibration()
    hopper = next(one for one in shipped.gpu_classes if one.name == "hopper")
    named = tuple(replace(hopper, name=slug, slugs=(slug,), band=band) for slug, band in bands.items())
    return replace(shipped, gpu_classes=(*named, *shipped.gpu_classes))


def known_or_guessed(
    objective: ObjectiveKind = "max_throughput",
    *,
    load: float = 1.0,
    known: int = 20,
    guessed: int = 20,
    bands: dict[str, float] = BANDS,
    **others: Any,
) -> Problem:
    """`known` for 1 $/h and 500 W, `guessed` for 0.9 $/h and 450 W; `load` in units of what one of them sustains."""
    h100 = load_gpus()["h100-sxm"]
    others.setdefault("budget_usd_per_hour", 10.0)
    return a_problem(
        objective=objective,
        models=[a_model(a_workload(demand=load * rate_of_one()), spec=load_models()["llama-3.1-8b"])],
        offers=[
            an_offer("known", price=1.0, available=known),
            an_offer("guessed", price=0.9, available=guessed),
        ],
        gpus=[replace(h100, slug="known", tdp_watts=500.0), replace(h100, slug="guessed", tdp_watts=450.0)],
        calibration=calibrated(bands),
        estimates="roofline",
        measured_only=False,
        **others,
    )


@cache
def rate_of_one() -> float:
    """Requests/s of one H100 under `calibrated`."""
    problem = a_problem(
        models=[a_model(spec=load_models()["llama-3.1-8b"])],
        offers=[an_offer("known")],
        gpus=[replace(load_gpus()["h100-sxm"], slug="known")],
        calibration=calibrated(BANDS),
        estimates="roofline",
        measured_only=False,
    )
    return float(enumerate_candidates(problem, build_supply(problem)).rps[0, 0])


def random_banded_problem(seed: int, objective: ObjectiveKind) -> Problem:
    """A tiny market of the two on single machines, for one model with one to three workloads."""
    draw = Random(seed)
    workloads = [
        a_workload(f"w{i}", demand=draw.uniform(5.0, 25.0), input_tokens=draw.choice([200.0, 2000.0]))
        for i in range(draw.randint(1, 3))
    ]
    is_limited = draw.random() < 0.3 and len(workloads) == 1  # of several, a layout has points that no one row states
    slo = (LatencyLimit("tpot", 90, 0.05),) if is_limited else ()
    offers = [
        an_offer(
            gpu,
            gpus,
            price=round(gpus * draw.uniform(0.7, 1.4), 2),
            available=draw.randint(1, 2),
            offer_id=f"o{number}",
        )
        for number, (gpu, gpus) in enumerate((draw.choice(list(BANDS)), draw.choice([1, 1, 2])) for _ in range(4))
    ]
    h100 = load_gpus()["h100-sxm"]
    return a_problem(
        objective=objective,
        headroom_fraction=draw.choice([0.0, 0.1]),
        models=[a_model(*workloads, spec=load_models()["llama-3.1-8b"], slo=slo)],
        offers=offers,
        gpus=[replace(h100, slug=slug, tdp_watts=watts) for slug, watts in (("known", 500.0), ("guessed", 450.0))],
        budget_usd_per_hour=draw.uniform(2.0, 6.0),
        search=Search(tensor_parallel=(1, 2), max_pipeline_stages=1),
        calibration=calibrated(BANDS),
        estimates="roofline",
        options=SolveOptions(relative_gap=1e-4),
        measured_only=False,
    )


def measured_at_low(problem: Problem) -> Problem:
    """The low end of every rate as a measured one; for replicas of one stage, whose links are all the same."""
    return measured_at("low_rps", problem)


def measured_at(rates: Literal["rps", "low_rps"], problem: Problem) -> Problem:
    """Every rate, or its low end, as a measured one; rows in the same order for both."""
    supply = build_supply(problem)
    found = enumerate_candidates(problem, supply)
    names = [workload.name for workload in problem.models[0].workloads]
    rows = {
        (supply.pools[pool].gpu, degree): dict(zip(names, rps.tolist(), strict=True))
        for pool, degree, rps in zip(
            found.pool[:, 0].tolist(), found.tensor_parallel[:, 0].tolist(), getattr(found, rates), strict=True
        )
    }
    table = tuple(MeasuredRate("chat", (MeasuredStage(*stage),), rps) for stage, rps in rows.items())
    return replace(problem, measured=table, measured_only=True)


def counting_on_low(problem: Problem) -> Problem:
    """Every configuration derated to the low end of its band, so that an ordinary plan is the best one there."""
    supply = build_supply(problem)
    found = enumerate_candidates(problem, supply)
    shares = np.where(found.rps > 0, found.low_rps, -np.inf) / np.where(found.rps > 0, found.rps, 1.0)
    derated = {}
    for row in range(len(found)):
        stages = tuple(
            MeasuredStage(supply.pools[pool].gpu, degree)
            for pool, degree in zip(found.pool[row].tolist(), found.tensor_parallel[row].tolist(), strict=True)
            if pool >= 0
        )
        name, ranks = problem.models[int(found.model[row])].name, int(found.data_parallel[row])
        derated[name, stages, ranks] = float(shares[row].max())
    fractions = tuple(
        Derating(model, stages, share, data_parallel=ranks)
        for (model, stages, ranks), share in derated.items()
        if share < 1
    )
    return replace(problem, derated=fractions, options=replace(problem.options, alternatives=False))
