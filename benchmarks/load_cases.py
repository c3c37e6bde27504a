"""Plans with latency limits beside the same problems at fixed loads: `python -m benchmarks.load_cases`.

Each problem is planned as it stands and with the load of every replica capped at 60, 70, 75, 80 and 85 % of what its
cap carries; then each replica of the first plan is simulated with what it is given, as Poisson arrivals. Writes the
table of docs/estimates.md. Exit 1 where a cap makes a plan better, or a replica misses a limit.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.load_ceilings import misses
from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.estimate import one_layout
from sutler.solver.plan import Plan, Replica
from sutler.solver.problem import (
    LatencyLimit,
    Limits,
    Objective,
    ObjectiveKind,
    Offer,
    Problem,
    ServedModel,
    SolveOptions,
    Workload,
)

FIXED_LOADS: Final = (0.6, 0.7, 0.75, 0.8, 0.85)
DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "estimates.md"
MARK: Final = "<!-- measured: python -m benchmarks.load_cases -->\n\n"
_REQUESTS: Final = 20_000
_OPTIMAL_TWICE: Final = 2e-3  # both gaps
_FIRST: Final = "| problem | plan | at the best fixed load | its replicas | simulated |\n|---|---|---|---|---|\n"


def cases() -> Iterator[tuple[str, Problem]]:
    """Lists the cases in words and as problems: one model on one kind of machine each."""
    l40s = Offer("c", "l40s", "l40s", 8, 1, 8.0, intra_machine_gb_per_s=32.0)
    many = replace(l40s, available=9, divisible=True)
    rtx_4090 = Offer("c", "4090", "rtx-4090", 8, 1, 3.2, intra_machine_gb_per_s=32.0)
    h100 = Offer("c", "h100", "h100-sxm", 8, 6, 16.0, divisible=True)
    both = (LatencyLimit("ttft", 90, 2.0), LatencyLimit("tpot", 90, 0.05))
    tight = (LatencyLimit("ttft", 90, 1.0), LatencyLimit("tpot", 90, 0.04))
    document = (Workload("w", 2048, 256, 1.0),)
    name = "8B, 2048/256 tokens, TTFT p90 2 s, TPOT p90 50 ms"
    yield f"{name}, one 8 × L40S", _problem("llama-3.1-8b", document, both, l40s, "max_throughput")
    ten = (replace(document[0], demand=10.0),)
    yield f"{name}, 10 req/s on L40S at 1 $/h", _problem("llama-3.1-8b", ten, both, many, "min_cost")
    short = (Workload("w", 1500, 200, 1.0),)
    problem = _problem("llama-3.1-8b", short, tight, rtx_4090, "max_throughput")
    yield "8B, 1500/200, TTFT p90 1 s, TPOT p90 40 ms, one 8 × RTX 4090", problem
    mix = (Workload("rag", 6000, 300, 2.0), Workload("chat", 600, 250, 6.0))
    for seconds in (6.0, 4.0, 3.0):
        slo = (LatencyLimit("ttft", 90, seconds),)
        problem = _problem("llama-3.1-70b", mix, slo, h100, "min_cost")
        yield f"70B, 2 req/s of 6000/300 and 6 of 600/250, TTFT p90 {seconds:g} s, H100 at 2 $/h", problem
    long = (Workload("w", 12000, 200, 1.0),)
    tpot = (LatencyLimit("tpot", 90, 0.05),)
    one = Offer("c", "h100", "h100-sxm", 1, 1, 2.0)
    problem = _problem("llama-3.1-8b", long, tpot, one, "max_throughput")
    yield "8B, 12000/200, TPOT p90 50 ms, one H100", problem


def _problem(
    model: str, workloads: tuple[Workload, ...], slo: tuple[LatencyLimit, ...], offer: Offer, kind: ObjectiveKind
) -> Problem:
    served = ServedModel("m", load_models()[model], "bf16", "bf16", workloads, slo)
    options = SolveOptions(alternatives=False)
    return Problem(Objective(kind), (served,), (offer,), load_gpus(), None, options=options)


def row(name: str, problem: Problem) -> tuple[str, bool]:
    """A row of the table, and whether the plan is as good as at every fixed load and keeps its limits."""
    plan = solve(problem)
    fixed = [(solve(replace(problem, limits=Limits(max_utilisation_fraction=load))), load) for load in FIXED_LOADS]
    sign = 1.0 if problem.objective.kind == "max_throughput" else -1.0
    known = [(other.value, load) for other, load in fixed if other.value is not None]
    best, load = max(known, key=lambda found: sign * found[0], default=(np.nan, np.nan))
    unit = "req/s" if sign > 0 else "$/h"
    holds = plan.value is not None and not sign * (best - plan.value) > _OPTIMAL_TWICE * plan.value
    missed = sorted({text for replica in plan.replicas for text in _missed(problem, replica)})
    simulated = "; ".join(missed) or "all limits kept"
    cells = (name, f"{plan.value or 0:.2f} {unit}", f"{best:.2f} at {load}", _replicas(plan), simulated)
    return f"| {' | '.join(cells)} |\n", holds and not missed


def _missed(problem: Problem, replica: Replica) -> list[str]:
    (model,), stage = problem.models, replica.stages[0]
    layouts = one_layout(
        problem.gpus[stage.gpu], tensor_parallel=stage.tensor_parallel, pipeline_parallel=len(replica.stages)
    )
    layouts = replace(layouts, layers=np.array([[each.layers or 0 for each in replica.stages]]))
    given = {rate.workload: rate.rps for rate in replica.throughput_rps}
    rps = np.array([given.get(workload.name, 0.0) for workload in model.workloads])
    return misses(model, layouts, rps, cap=replica.max_batch or 1, requests=_REQUESTS)


def _replicas(plan: Plan) -> str:
    """Alike ones once."""
    counts: dict[str, int] = {}
    for replica in plan.replicas:
        degree, stages = replica.stages[0].tensor_parallel, len(replica.stages)
        layout = f"TP{degree}" + f"·PP{stages}" * (stages > 1)
        load = f"{100 * replica.utilisation_fraction:.0f} of {100 * (replica.max_load_fraction or 0):.0f} %"
        key = f"{layout}, cap {replica.max_batch}, {load}"
        counts[key] = counts.get(key, 0) + 1
    return "; ".join(f"{count} × {key}" for key, count in counts.items())


def main() -> int:
    """Exit status 1 where a case does not hold."""
    text, everything_holds = _FIRST, True
    for name, problem in cases():
        line, holds = row(name, problem)
        print(line, end="", flush=True)
        text, everything_holds = text + line, everything_holds and holds
    before, mark, after = DOCUMENT.read_text().partition(MARK)
    if mark:
        DOCUMENT.write_text(before + mark + text + "\n" + after.partition("\n\n")[2])
    return 0 if everything_holds else 1


if __name__ == "__main__":
    sys.exit(main())
