"""How fast a plan is simulated: `python -m benchmarks.simulation` (`make simulation-bench`).

The whole Azure conversation trace through the ten replicas of a plan, by every way of routing; and the same trace
several times over, for what memory does. Each is a process of its own. Exit 1 where a target is missed, 2 without
the trace, which is no part of the repository.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict

import numpy as np

from benchmarks.day.traffic import FILES, TRACES
from benchmarks.machine import Machine, describe_machine
from benchmarks.program import parser_of, write_results
from benchmarks.scratch import tell
from sutler.service.documents.traces import RequestTrace, read_trace_file
from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Plan
from sutler.solver.problem import Objective, Offer, Problem, Search, ServedModel, Workload
from sutler.solver.simulation.fleet import simulate
from sutler.solver.simulation.replicas import lengths_of, simulated_replicas
from sutler.solver.simulation.requests import RequestKind, Requests, requests_of
from sutler.solver.simulation.routing import RoutingPolicy

REPLICAS: Final = 10
SECONDS_TARGET: Final = 5.0
BYTES_PER_REQUEST_TARGET: Final = 1024.0
REPEATS: Final = 3
LONGER: Final = 10
_POLICIES: Final[tuple[RoutingPolicy, ...]] = ("round_robin", "random", "least_loaded")


class Row(TypedDict):
    """The best of REPEATS; `peak_mb` is the growth of the process while it simulates once."""

    routing: str
    requests: int
    seconds: float
    peak_mb: float
    steps_s: float


class Report(TypedDict):
    machine: Machine
    replicas: int
    rows: list[Row]
    bytes_per_request: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it and write the results; the exit status."""
    parser = parser_of("simulation", __doc__)
    options = parser.parse_args(arguments)
    path = TRACES / FILES[0]
    if not path.exists():
        tell(f"{FILES[0]} is not in {TRACES.name}: put it beside the checkout, as shared/data/traces")
        return 2
    rows = [_apart(path, policy, 1) for policy in _POLICIES]
    longer = _apart(path, _POLICIES[0], LONGER)
    growth = (longer["peak_mb"] - rows[0]["peak_mb"]) * 1e6 / (longer["requests"] - rows[0]["requests"])
    report = Report(
        machine=describe_machine(), replicas=REPLICAS, rows=[*rows, longer], bytes_per_request=max(growth, 0.0)
    )
    shown = text_of(report)
    write_results(options.out, "simulation", shown, report)
    return int(bool(missed(report)))


def missed(report: Report) -> list[str]:
    """The targets that were."""
    found = []
    slowest = max(row["seconds"] for row in report["rows"][: len(_POLICIES)])
    if slowest > SECONDS_TARGET:
        found.append(f"the trace takes {slowest:.2f} s, target {SECONDS_TARGET:g} s")
    if report["bytes_per_request"] > BYTES_PER_REQUEST_TARGET:
        found.append(
            f"a request keeps {report['bytes_per_request']:.0f} bytes, target {BYTES_PER_REQUEST_TARGET:.0f}"
        )
    return found


def text_of(report: Report) -> str:
    """Writes the report for people."""
    machine = report["machine"]
    lines = [
        f"Simulation of {report['replicas']} replicas of llama-3-8b on l40, one core",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}; sutler {machine['sutler']}",
        "",
        f"{'routing':<14}{'requests':>10}{'seconds':>10}{'requests/s':>12}{'peak MB':>9}",
    ]
    lines += [
        f"{row['routing']:<14}{row['requests']:>10,}{row['seconds']:>10.2f}{row['requests'] / row['seconds']:>12,.0f}"
        f"{row['peak_mb']:>9.1f}"
        for row in report["rows"]
    ]
    lines += [
        "",
        f"Memory grows by {report['bytes_per_request']:.0f} bytes per request, its lengths and times.",
        *(f"missed: {one}" for one in missed(report)),
        "Targets: 5 s for the trace, 1 kB per request." if not missed(report) else "",
    ]
    return "\n".join(lines).rstrip() + "\n"


def _apart(path: Path, policy: RoutingPolicy, times: int) -> Row:
    tell(f"{policy}, {times} times the trace")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (path, policy, times))


def _measured(path: Path, policy: RoutingPolicy, times: int) -> Row:
    recorded = read_trace_file(path)
    problem, plan = planned(recorded)
    requests = _requests(recorded, times)
    lengths = {"chat": lengths_of(problem.models[0], requests.input_tokens, requests.output_tokens)}
    replicas = simulated_replicas(
        plan.replicas,
        models={"chat": problem.models[0]},
        gpus=problem.gpus,
        evidence=plan.evidence,
        lengths=lengths,
    )
    fractions = np.full((1, len(replicas)), 1.0 / len(replicas))
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    peak_kb = before_kb
    for repeat in range(REPEATS if times == 1 else 1):
        started = time.perf_counter()
        outcome = simulate(replicas, fractions, requests, routing=policy)
        seconds.append(time.perf_counter() - started)
        if not outcome.is_served.all():
            raise RuntimeError("not all requests were served")
        if repeat == 0:
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Row(
        routing=policy,
        requests=len(requests),
        seconds=min(seconds),
        peak_mb=(peak_kb - before_kb) * 1024 / 1e6,
        steps_s=float(outcome.finish_s.max()),
    )


def planned(recorded: RequestTrace) -> tuple[Problem, Plan]:
    """Ten single cards, all of which the budget buys."""
    mean_in, mean_out = float(recorded.input_tokens.mean()), float(recorded.output_tokens.mean())
    workload = Workload("w", mean_in, mean_out, 1.0)
    problem = Problem(
        objective=Objective("max_throughput"),
        models=(ServedModel("chat", load_models()["llama-3-8b"], "bf16", "bf16", (workload,)),),
        offers=(Offer("cloud", "l40", "l40", 1, REPLICAS, 1.0),),
        gpus={"l40": load_gpus()["l40"]},
        budget_usd_per_hour=float(REPLICAS),
        search=Search(max_pipeline_stages=1),
    )
    plan = solve(problem)
    if len(plan.replicas) != REPLICAS:
        raise RuntimeError(f"the plan has {len(plan.replicas)} replicas")
    return problem, plan


def _requests(recorded: RequestTrace, times: int) -> Requests:
    kind = RequestKind("chat", "w", float(recorded.input_tokens.mean()), float(recorded.output_tokens.mean()), 1.0)
    once = requests_of((kind,), "chat", recorded.arrival_s, recorded.input_tokens, recorded.output_tokens)
    shifts = np.repeat(np.arange(times) * recorded.duration_s, len(once))
    return replace(
        once,
        kind=np.tile(once.kind, times),
        arrival_s=np.tile(once.arrival_s, times) + shifts,
        input_tokens=np.tile(once.input_tokens, times),
        output_tokens=np.tile(once.output_tokens, times),
    )


if __name__ == "__main__":
    sys.exit(main())
