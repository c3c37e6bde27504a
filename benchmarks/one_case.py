"""Solves one case in a process of its own, so that peak memory is the case's: `python -m benchmarks.one_case`.

The case comes in as JSON on stdin, the result goes out as JSON on stdout.
"""

import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from benchmarks import instances
from benchmarks.cases import RELATIVE_GAP, Case, Result, Solver
from benchmarks.melange_inputs import drawn, least_cost_by_slices
from benchmarks.plain import solve_plainly
from sutler.solver.candidates import shapes
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.problem import Problem, SolveOptions

_KIBIBYTES_PER_MEGABYTE: Final = 1e6 / 1024
_FINISHES: Final = ("min cost", "low end", "fewest parts")


@dataclass(frozen=True, slots=True)
class _Solved:
    candidates: int
    value: float | None
    bound: float | None
    relative_gap: float | None
    seconds: Mapping[str, float]
    status: str
    limit: str | None
    cost_usd_per_hour: float | None = None
    plan_digest: str | None = None


def main() -> None:
    """Read a case, solve it, print the result."""
    document = json.load(sys.stdin)
    document["parameters"] = tuple((name, value) for name, value in document["parameters"])
    json.dump(measured(Case(**document)), sys.stdout)


def measured(case: Case) -> Result:
    """The case solved, with its time and memory. Must run first in a fresh process: peaks cannot be reset."""
    import_mb = _peak_mb()
    problem: Problem = getattr(instances, case.build)(**dict(case.parameters))
    if case.latency_limits:
        problem = instances.within_limits(problem)
    wall, cpu = time.perf_counter(), time.process_time()
    solved = _SOLVERS.get(case.solver, _planned)(problem, case)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    seconds = solved.seconds
    return Result(
        candidates=solved.candidates,
        workloads=len(problem.models[0].workloads),
        models=len(problem.models),
        offers=len(problem.offers),
        value=solved.value,
        bound=solved.bound,
        relative_gap=solved.relative_gap,
        candidates_seconds=seconds.get("candidates", 0.0),
        solve_seconds=seconds.get("solve", 0.0),
        finish_seconds=_sum(seconds, _FINISHES),
        plan_seconds=_sum(seconds, ("plan", "verify")),
        total_seconds=wall,
        cpu_seconds=cpu,
        peak_mb=_peak_mb(),
        import_mb=import_mb,
        status=solved.status,
        limit=solved.limit,
        cost_usd_per_hour=solved.cost_usd_per_hour,
        plan_digest=solved.plan_digest,
    )


def _planned(problem: Problem, case: Case) -> _Solved:
    """Solves by the planner, from enumeration to the verified plan."""
    assert case.solver in ("exact", "binary_search")
    options = SolveOptions(
        method=case.solver,
        relative_gap=RELATIVE_GAP,
        tolerance_fraction=RELATIVE_GAP,
        time_limit_s=case.time_limit_s,
        alternatives=False,
    )
    search = replace(problem.search, disaggregation=case.disaggregation)
    plan = solve(replace(problem, options=options, search=search))
    return _Solved(
        candidates=plan.solver.candidates,
        value=plan.value,
        bound=plan.bound,
        relative_gap=plan.relative_gap,
        seconds={phase.phase: phase.seconds for phase in plan.solver.phases},
        status=plan.status,
        limit=plan.solver.limit,
        cost_usd_per_hour=plan.cost_usd_per_hour,
        plan_digest=_digest(plan),
    )


def _generated(problem: Problem, case: Case) -> _Solved:
    """Lists no pipeline of several machines."""
    shapes.MOST_LISTED = 0  # type: ignore[misc]
    return _planned(problem, replace(case, solver="exact"))


def _plain(problem: Problem, case: Case) -> _Solved:
    problem = replace(problem, options=SolveOptions(relative_gap=RELATIVE_GAP))
    answer = solve_plainly(problem, solve_limit_s=case.time_limit_s)
    seconds = {"candidates": answer.polytope_seconds, "solve": answer.solve_seconds}
    solved = _by_one_program(answer.value_rps, answer.bound_rps, answer.limit_hit, case)
    return replace(solved, candidates=answer.candidates, seconds=seconds)


def _slices(_problem: Problem, case: Case) -> _Solved:
    given = drawn(int(dict(case.parameters)["seed"]))
    cost, bound, limit_hit = least_cost_by_slices(given, limit_s=case.time_limit_s)
    return replace(_by_one_program(cost, bound, limit_hit, case), cost_usd_per_hour=cost)


def _by_one_program(value: float | None, bound: float, limit_hit: bool, case: Case) -> _Solved:
    """What a solver of integer programs says."""
    return _Solved(
        candidates=0,
        value=value,
        bound=bound,
        relative_gap=None if not value else abs(bound - value) / value,
        seconds={},
        status="unknown" if value is None else "feasible" if limit_hit else "optimal",
        limit=f"time limit of {case.time_limit_s:g} s" if limit_hit else None,
    )


_SOLVERS: Final[dict[Solver, Callable[[Problem, Case], _Solved]]] = {
    "plain": _plain,
    "slices": _slices,
    "generated": _generated,
}


def _digest(plan: Plan) -> str:
    """A hash of everything in the plan but the seconds; equal for equal plans only."""
    timeless = replace(plan, solver=replace(plan.solver, seconds=0.0, phases=()))
    return hashlib.sha256(json.dumps(asdict(timeless), sort_keys=True).encode()).hexdigest()


def _sum(seconds: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    found = [seconds[name] for name in names if name in seconds]
    return sum(found) if found else None


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIBIBYTES_PER_MEGABYTE


if __name__ == "__main__":
    main()
