"""Engines whose true speed is known: a plan simulated under random arrivals, told as its metrics would tell it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from sutler.service.deployments.rates.learning import Told
from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.validation import validate
from sutler.service.library.planning import plan
from sutler.service.translation.calibrations import fitted_parts
from sutler.service.translation.to_plan import gpus_of, served_models, solver_plan
from sutler.solver.calibration.factors import Calibration, shipped_calibration
from sutler.solver.simulation.fleet import simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.replicas import lengths_of, simulated_replicas
from sutler.solver.simulation.requests import RequestKind, poisson
from sutler.solver.throughput.roofline import Roofline

START: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
EVERY_S: Final = 15.0
WARM_UP_S: Final = 120.0
PRICES: Final = {"h100-sxm": 2.6, "a100-sxm4-80gb": 1.5, "l40s": 0.85}


def a_problem(rate_rps: float, *gpus: str, **others: Any) -> dict[str, Any]:
    """Two kinds of requests for a model, for the least cost, on machines with one GPU of these kinds."""
    kinds = {"short": (512, 128, 0.75), "long": (3000, 300, 0.25)}
    offers = [
        {
            **{"provider": "acme", "offer_id": gpu, "gpu": gpu, "gpus": 1, "contract": "on_demand"},
            **{"price_usd_per_hour": PRICES[gpu], "available": 20},
        }
        for gpu in gpus
    ]
    workloads = [
        {"name": name, "input_tokens": inputs, "output_tokens": outputs, "rate_rps": share * rate_rps}
        for name, (inputs, outputs, share) in kinds.items()
    ]
    slo = {"ttft_p90_s": 2.0, "tpot_p90_s": 0.08}
    return {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "llama-3.1-8b", "slo": slo, "workloads": workloads}],
        "market": {"offers": {"schema": "sutler/market/v1", "taken_at": START.isoformat(), "offers": offers}},
        "solver": {"time_limit_s": 20},
        **others,
    }


def a_plan(problem: dict[str, Any], calibration: CalibrationDocument | None = None) -> PlanDocument:
    """Made long ago, by these estimates or by the shipped ones."""
    throughput: dict[str, Any] = {}
    if calibration is not None:
        throughput = {"throughput": {"calibration": calibration.model_dump(mode="json", by_alias=True)}}
    return plan({**problem, **throughput}).model_copy(update={"created_at": START - timedelta(days=1)})


def a_truth(speed: float) -> Calibration:
    """Every GPU so many times as fast as the shipped estimates say."""
    shipped = shipped_calibration()
    classes = tuple(
        replace(one, compute=one.compute * speed, bandwidth=one.bandwidth * speed, overhead=one.overhead / speed)
        for one in shipped.gpu_classes
    )
    return replace(shipped, gpu_classes=classes, name="truth")


def known_perfectly(truth: Calibration) -> CalibrationDocument:
    """What one who knows the truth would plan with."""
    nothing = dict.fromkeys(("before", "after", "left_out"))
    stated = {"name": "truth", "revision": 0, "created_at": START, "sutler": "1", "runs": 1, "layer_times": 0}
    return validate(
        CalibrationDocument,
        {"schema": "sutler/calibration/v1", "engine_versions": (), **stated, **nothing, **fitted_parts(truth)},
    )


def told(
    of: PlanDocument, truth: Calibration, *, load: float = 0.6, seconds: float = 600.0, seed: int = 1
) -> list[Told]:
    """What the engines of a plan tell every quarter of a minute, at so many times its load."""
    planned, models = solver_plan(of), served_models(of)
    kinds, fractions = [], []
    ids = [replica.id for replica in planned.replicas]
    for route in planned.routing:
        workload = next(one for one in models[route.model].workloads if one.name == route.workload)
        rate_rps = workload.demand * load
        kinds.append(RequestKind(route.model, workload.name, workload.input_tokens, workload.output_tokens, rate_rps))
        shares = {share.replica: share.fraction for share in route.shares}
        fractions.append([shares.get(replica, 0.0) for replica in ids])
    requests = poisson(kinds, duration_s=seconds + WARM_UP_S, seed=seed)
    lengths = {
        name: lengths_of(model, requests.input_tokens, requests.output_tokens) for name, model in models.items()
    }
    replicas = simulated_replicas(
        planned.replicas,
        models=models,
        gpus=gpus_of(of),
        evidence=planned.evidence,
        lengths=lengths,
        roofline=Roofline(truth),
    )
    outcome = simulate(replicas, np.array(fractions), requests, routing="random", seed=seed)
    return list(_readings(outcome, ids, seconds))


def _readings(outcome: Outcome, ids: list[str], seconds: float) -> Iterator[Told]:
    requests = outcome.requests
    for number in range(int(seconds / EVERY_S)):
        begin_s = WARM_UP_S + number * EVERY_S
        came = (outcome.finish_s > begin_s) & (outcome.finish_s <= begin_s + EVERY_S)
        for place, replica in enumerate(ids):
            of_replica = came & (outcome.replica == place)
            if not of_replica.any():
                continue
            parts = [of_replica & (requests.kind == kind) for kind in range(len(requests.kinds))]
            sizes = tuple(
                (
                    float(requests.input_tokens[part].mean()),
                    float(requests.output_tokens[part].mean()),
                    float(part.sum()),
                )
                for part in parts
                if part.any()
            )
            yield Told(
                model="chat",
                source=replica,
                replica=None,
                started_at=START + timedelta(seconds=begin_s),
                ended_at=START + timedelta(seconds=begin_s + EVERY_S),
                sizes=sizes,
                requests=float(of_replica.sum()),
                residence_s=float(outcome.e2e_s[of_replica].mean()),
                cached_fraction=0.0,
            )
