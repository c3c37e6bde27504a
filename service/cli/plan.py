"""`sutler plan`: a problem file in, a plan out, with its proof.

What is slow to import (pydantic, SciPy, OR-Tools) is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import exit_of_plan, guarded
from sutler.service.cli.terminal.input import folder_of
from sutler.service.cli.terminal.options import ProblemFile, also_writes, prints
from sutler.service.cli.terminal.output import check_target, deliver
from sutler.solver.progress import Progress

if TYPE_CHECKING:
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.problem import ProblemDocument
    from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic
    from sutler.solver.problem import Problem


@guarded
def plan(
    problem: ProblemFile,
    as_json: Annotated[bool, prints("the plan, as JSON (`sutler schema plan`)")] = False,
    out: Annotated[Path | None, also_writes("the plan")] = None,
    time_limit_s: Annotated[
        float | None, typer.Option(help="Seconds to solve for at most; wins over solver.time_limit_s.")
    ] = None,
    relative_gap: Annotated[
        float | None, typer.Option(help="Gap to prove, as a fraction; wins over solver.relative_gap.")
    ] = None,
    alternatives: Annotated[
        bool | None,
        typer.Option(
            "--alternatives/--no-alternatives", help="Also solve without each rented GPU type, and at low rates."
        ),
    ] = None,
    give_up: Annotated[
        float | None,
        typer.Option(
            help="Share of the optimum to give up for load at the low end of the bands, as 0.01; wins over "
            "objective.give_up_fraction."
        ),
    ] = None,
    validate: Annotated[
        bool,
        typer.Option(
            "--validate", help="Replay the plan; where it misses limits, plan again with less of what missed them."
        ),
    ] = False,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --validate: replay these recorded requests at the plan's rate ([MODEL=]FILE); default: the "
            "problem's own traces, else Poisson arrivals."
        ),
    ] = None,
) -> None:
    """Say which GPUs to rent, how to deploy the models on them and where to route each workload, with proof.

    Exit status: 0 planned, 2 bad input, 3 infeasible (what must give is printed), 4 no market data,
    5 time limit without any plan, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.problems import read_problem
    from sutler.service.cli.views.plan import plan_view

    check_target(out)
    solver = {"time_limit_s": time_limit_s, "relative_gap": relative_gap, "alternatives": alternatives}
    document = read_problem(problem, solver=solver, objective={"give_up_fraction": give_up})
    if trace and not validate:
        raise typer.BadParameter("--trace goes with --validate")
    made = _make_plan(document, folder_of(problem), validates=validate, traces=trace or ())
    deliver(made, plan_view(made), as_json=as_json, out=out)
    raise typer.Exit(exit_of_plan(made.status))


def _make_plan(
    document: "ProblemDocument", folder: Path, *, validates: bool, traces: Sequence[Path]
) -> "PlanDocument":
    from sutler.service.cli.problems import translated
    from sutler.service.translation.from_plan import issue_plan
    from sutler.solver import solve

    translation = translated(document, folder)

    def solved(problem: "Problem") -> "PlanDocument":
        from sutler.service.cli.views.progress import progress_line

        latest = [Progress("solving", 0.0)]
        plan = in_background(
            lambda: solve(problem, on_progress=latest.append),
            lambda seconds: progress_line(replace(latest[-1], seconds=seconds), problem.objective.kind),
        )
        made = replace(translation, problem=problem)
        return issue_plan(plan, made, plan_id=uuid4(), created_at=datetime.now(UTC))

    made = solved(translation.problem)
    if not validates:
        return made
    from sutler.service.simulation.validation import validated

    return validated(translation.problem, made, _traffic(document, folder, traces), solve_again=solved)


def _traffic(document: "ProblemDocument", folder: Path, traces: Sequence[Path]) -> "TraceTraffic | PoissonTraffic":
    """What is replayed: the traces that options name, else those of the problem, else arrivals at random."""
    from sutler.service.cli.simulate import recorded
    from sutler.service.documents.traces import read_trace_file
    from sutler.service.simulation.traffic import traffic_of
    from sutler.service.translation.market_source import resolve_path

    names = [model.name for model in document.models]
    known = recorded(names, traces, "--trace")
    for index, model in enumerate(document.models):
        if model.trace is not None and not traces:
            at = f"models[{index}].trace"
            known[model.name] = read_trace_file(resolve_path(model.trace.file, folder, field=at), field=at)
    return traffic_of(names, known)
