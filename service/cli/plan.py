"""`sutler plan`: a problem file in, a plan out, with its proof; with changes, several plans side by side.

What is slow to import (pydantic, SciPy, OR-Tools) is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sutler.service.cli.changes import (
    Budget,
    Contract,
    Exclude,
    Precision,
    Region,
    Robust,
    Set,
    asked_variants,
)
from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import exit_of_plan, guarded
from sutler.service.cli.terminal.input import folder_of, read_problem
from sutler.service.cli.terminal.options import ProblemFile, also_writes, prints
from sutler.service.cli.terminal.output import check_target, deliver
from sutler.service.errors import Exit
from sutler.solver.progress import Progress

if TYPE_CHECKING:
    from sutler.service.documents.changes import Changes
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.what_if import VariantDocument, WhatIfDocument


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
    sets: Set = None,
    budget: Budget = None,
    exclude: Exclude = None,
    contract: Contract = None,
    region: Region = None,
    precision: Precision = None,
    robust: Robust = False,
) -> None:
    """Say which GPUs to rent, how to deploy the models on them and where to route each workload, with proof.

    What if: --set and the options after it change the problem. Where they leave several, a table shows them side by
    side (--json: `sutler schema what-if`); the exit status is then 0 if any of them has a plan.

    Exit status: 0 planned, 2 bad input, 3 infeasible (what must give is printed), 4 no market data,
    5 time limit without any plan, 130 interrupted, 1 our fault.
    """
    from sutler.service.documents.changes import changed

    check_target(out)
    data, folder = read_problem(problem), folder_of(problem)
    wins: dict[str, object] = {
        "solver.time_limit_s": time_limit_s,
        "solver.relative_gap": relative_gap,
        "solver.alternatives": alternatives,
        "objective.give_up_fraction": give_up,
    }
    options = {path: value for path, value in wins.items() if value is not None}
    asked = asked_variants(
        data,
        folder,
        sets=sets,
        budget=budget,
        exclude=exclude,
        contract=contract,
        region=region,
        precision=precision,
        robust=robust,
    )
    if trace and not validate:
        raise typer.BadParameter("--trace goes with --validate")
    if len(asked) == 1:
        changes = {**asked[0], **options}
        _one(data, folder, changes, validates=validate, traces=trace or (), as_json=as_json, out=out)
    if validate:
        raise typer.BadParameter("--validate goes with one plan: leave one value for each key")
    _several(changed(data, options), folder, asked, as_json=as_json, out=out)


def _one(
    data: dict[str, Any],
    folder: Path,
    changes: "Changes",
    *,
    validates: bool,
    traces: Sequence[Path],
    as_json: bool,
    out: Path | None,
) -> None:
    """Makes and shows a plan, and ends as it calls for. Raises typer.Exit."""
    from sutler.service.cli.simulate import recorded
    from sutler.service.cli.views.plan import plan_view
    from sutler.service.library.planning import planned, traffic_of_problem, validated_plan
    from sutler.service.library.problems import problem_document, translated

    document = problem_document(data, changes)
    translation = translated(document, folder)
    latest, limit_s = [Progress("solving", 0.0)], None if validates else document.solver.time_limit_s

    def work() -> "PlanDocument":
        if not validates:
            return planned(translation, on_progress=latest.append)
        known = recorded([model.name for model in document.models], traces, "--trace")
        return validated_plan(translation, traffic_of_problem(document, folder, known), on_progress=latest.append)

    made = in_background(work, lambda seconds: _line(latest[-1], seconds, document.objective.kind, limit_s))
    deliver(made, plan_view(made), as_json=as_json, out=out)
    raise typer.Exit(exit_of_plan(made.status))


def _several(
    data: dict[str, Any], folder: Path, asked: "Sequence[Changes]", *, as_json: bool, out: Path | None
) -> None:
    """Makes and shows plans side by side, and ends as the best of them calls for. Raises typer.Exit."""
    from sutler.service.cli.views.what_if import what_if_view
    from sutler.service.library.what_if import what_if

    latest, done = [Progress("solving", 0.0)], list["VariantDocument"]()
    kind = data.get("objective", {}).get("kind", "")

    def work() -> "WhatIfDocument":
        return what_if(data, asked, folder=folder, on_planned=done.append, on_progress=latest.append)

    made = in_background(
        work, lambda seconds: f"{len(done)} of {len(asked) + 1} planned · {_line(latest[-1], seconds, kind)}"
    )
    deliver(made, what_if_view(made), as_json=as_json, out=out)
    statuses = [one.status for one in made.variants]
    first = Exit.NO_MARKET_DATA if statuses[0] == "no_market_data" else exit_of_plan(statuses[0])
    raise typer.Exit(Exit.PLANNED if {"optimal", "feasible"} & {*statuses} else first)


def _line(progress: Progress, seconds: float, kind: Any, limit_s: float | None = None) -> str:
    from sutler.service.cli.views.progress import progress_line

    return progress_line(replace(progress, seconds=seconds), kind, limit_s=limit_s)
