"""`sutler plan`: a problem file in, a plan out, with its proof.

What is slow to import (pydantic, SciPy, OR-Tools) is imported when the command runs, so that --help is instant.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli.terminal.exits import Exit, guarded

if TYPE_CHECKING:
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.problem import ProblemDocument
    from sutler.solver.problem import Problem


@guarded
def plan(
    problem: Annotated[
        Path, typer.Argument(help="Problem file, YAML or JSON (`sutler schema problem`); - reads standard input.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only the plan, as JSON (`sutler schema plan`).")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write the plan to a JSON file.")
    ] = None,
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
    from sutler.service.cli.terminal.output import check_target, write_file, write_stdout
    from sutler.service.cli.terminal.reading import folder_of, read_problem
    from sutler.service.translation.from_plan import plan_json

    if out is not None:
        check_target(out)
    overrides = {"time_limit_s": time_limit_s, "relative_gap": relative_gap, "alternatives": alternatives}
    document = read_problem(problem, overrides, {"give_up_fraction": give_up})
    if trace and not validate:
        raise typer.BadParameter("--trace goes with --validate")
    made = _make_plan(document, folder_of(problem), validates=validate, traces=trace or ())
    content = plan_json(made).encode()
    if out is not None:
        write_file(out, content)
    if as_json:
        write_stdout(content)
    else:
        _show(made)
    raise typer.Exit(_status(made))


def _make_plan(
    document: "ProblemDocument", folder: Path, *, validates: bool, traces: Sequence[Path]
) -> "PlanDocument":
    from dataclasses import replace
    from datetime import UTC, datetime
    from uuid import uuid4

    from sutler.service.cli.terminal.background import solve_in_background
    from sutler.service.cli.terminal.reading import translated
    from sutler.service.translation.from_plan import issue_plan

    translation = translated(document, folder)
    from sutler.solver import solve

    def solved(problem: "Problem") -> "PlanDocument":
        plan = solve_in_background(problem, lambda problem, on_progress: solve(problem, on_progress=on_progress))
        made = replace(translation, problem=problem)
        return issue_plan(plan, made, plan_id=uuid4(), created_at=datetime.now(UTC))

    made = solved(translation.problem)
    return _validated(document, folder, translation.problem, made, solved, traces) if validates else made


def _validated(
    document: "ProblemDocument",
    folder: Path,
    problem: "Problem",
    made: "PlanDocument",
    solve_again: "Callable[[Problem], PlanDocument]",
    traces: Sequence[Path],
) -> "PlanDocument":
    from sutler.service.cli.simulate import recorded
    from sutler.service.documents.traces import read_trace_file
    from sutler.service.simulation.simulated import Choices
    from sutler.service.simulation.traffic import traffic_of
    from sutler.service.simulation.validation import validated
    from sutler.service.translation.market_source import resolve_path

    known = recorded([model.name for model in document.models], traces, "--trace")
    for index, model in enumerate(document.models):
        if model.trace is not None and not traces:
            at = f"models[{index}].trace"
            known[model.name] = read_trace_file(resolve_path(model.trace.file, folder, field=at), field=at)
    traffic = traffic_of([model.name for model in document.models], known)
    return validated(problem, made, traffic, Choices(), solve_again=solve_again)


def _show(made: "PlanDocument") -> None:
    from sutler.service.cli.terminal.output import show
    from sutler.service.cli.views.plan import plan_view

    show(*plan_view(made))


def _status(made: "PlanDocument") -> Exit:
    by_status = {"infeasible": Exit.INFEASIBLE, "unknown": Exit.NO_PLAN_IN_TIME}
    return by_status.get(made.status, Exit.PLANNED)
