"""What plans that are surer at low rates cost: `python -m benchmarks.robust` writes docs/robust.md.

Every case is planned four times: for the optimum, with 1 % and with 5 % of it given up, and for the low end outright.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.instances import single_offers
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import to_problem
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.problem import Objective, Problem, SolveOptions

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "robust.md"
EXAMPLES: Final = (
    "paper_case",
    "min_cost_slo",
    "vast_like",
    "power_capped",
    "disaggregated",
    "trace_case",
)
FRACTIONS: Final = (0.01, 0.05)
LOAD_RPS: Final = 40.0
TIME_LIMIT_S: Final = 120.0  # what a limit ends is no optimum to compare with
UNITS: Final = {"max_throughput": "req/s", "min_makespan": "s", "min_cost": "$/h", "min_power": "W"}
MARK: Final = "<!-- measured: python -m benchmarks.robust -->"


def main() -> None:
    """Plan every case and replace what stands below the mark of the page."""
    known = PAGE.read_text().split(MARK)[0]
    rows = [row(name, problem) for name, problem in problems()]
    PAGE.write_text(f"{known}{MARK}\n\n{table(rows)}")


def problems() -> Iterator[tuple[str, Problem]]:
    """The examples, and hundreds of single offers asked for the least cost of 40 requests/s."""
    for name in EXAMPLES:
        path = ROOT / "examples" / f"{name}.yaml"
        document = validate(ProblemDocument, read_document(path, field="PROBLEM"))
        yield name, to_problem(document, folder=path.parent, now=datetime.now(UTC)).problem
    for slices in (False, True):
        for seed in (0, 1):
            problem = single_offers(seed=seed, budget_usd_per_hour=40.0, slices=slices)
            yield f"500 {'slices' if slices else 'singles'}, seed {seed}", at_least_cost(problem)


def at_least_cost(problem: Problem) -> Problem:
    """The cheapest fleet for 40 requests/s of the mix."""
    factor = LOAD_RPS / problem.total_demand
    models = tuple(
        replace(model, workloads=tuple(replace(w, demand=w.demand * factor) for w in model.workloads))
        for model in problem.models
    )
    return replace(
        problem, models=models, objective=Objective("min_cost"), budget_usd_per_hour=None, options=SolveOptions()
    )


def row(name: str, problem: Problem) -> list[str]:
    """Writes one line of the table."""
    print(name, file=sys.stderr)
    problem = replace(problem, options=replace(problem.options, time_limit_s=TIME_LIMIT_S))
    objective = problem.objective
    started = time.perf_counter()
    best = solve(problem)
    cells = [name, f"{number(best.value)} {UNITS[objective.kind]}", low(problem, best)]
    for fraction in FRACTIONS:
        near = solve(replace(problem, objective=replace(objective, give_up_fraction=fraction)))
        cells += [given_up(best, near), low(problem, near)]
    robust = solve(replace(problem, objective=replace(objective, robust=True)))
    cells += [given_up(best, robust), low(problem, robust)]
    print(f"  {time.perf_counter() - started:.1f} s", file=sys.stderr)
    return cells


def given_up(best: Plan, plan: Plan) -> str:
    """What a plan's value is short of the optimum's; throughput is compared at the rates that each counts on."""
    if not best.value or plan.value is None:
        return "no plan"
    return f"{100 * (plan.value / best.value - 1):+.2f} %"


def low(problem: Problem, plan: Plan) -> str:
    """What the plan carries at the low end: a multiple of the load, or the objective's value."""
    found = plan.robustness
    if found is None:
        return "–"
    if found.load_multiple_at_low is not None:
        return f"{found.load_multiple_at_low:.3f} × load"
    return f"{number(found.value_at_low)} {UNITS[problem.objective.kind]}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.5g}"


def table(rows: list[list[str]]) -> str:
    """Writes the table in Markdown."""
    shares = [cell for fraction in FRACTIONS for cell in (f"{fraction:.0%} given up", "at the low end")]
    head = ["case", "optimum", "at the low end", *shares, "robust outright", "at the low end"]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
