"""`sutler offline simulate`, `adjust` and `run-plan`: a plan in; what becomes of it, a plan for the rest, or the
schedule or script that carries it out, out.

What is slow to import is imported when a command runs, so that --help is instant.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from uuid import uuid4

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.options import OfflinePlanFile, Output, also_writes, prints
from sutler.service.cli.terminal.output import check_target, deliver, json_bytes, write_or_print
from sutler.service.documents.errors import DocumentError

MOST_TIMES_SLOWER = 1000.0  # chosen: far beyond any model that still runs; slower ones would never end


@guarded
def simulate(
    plan: OfflinePlanFile,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Draw other lengths; default: the plan's own.")
    ] = None,
    slower: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=FACTOR", help="That model's steps take so many times as long; repeatable."),
    ] = None,
    as_json: Annotated[bool, prints("JSON (`sutler schema offline-simulation`)")] = False,
) -> None:
    """Run the schedule of a plan again and show planned beside simulated times.

    Exit status: 0 simulated, 2 bad input, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.offline.reading import read_plan
    from sutler.service.cli.views.offline.outcome import simulation_view
    from sutler.service.offline.simulating import simulated

    document = read_plan(plan)
    factors = _factors(slower or (), [model.name for model in document.models])
    found = in_background(
        lambda: simulated(document, seed=seed, slower=factors), lambda seconds: f"{seconds:.1f} s · simulating"
    )
    deliver(found, simulation_view(found), as_json=as_json)


@guarded
def adjust(
    plan: OfflinePlanFile,
    progress: Annotated[
        Path,
        typer.Option(metavar="FILE", help="What has been done, YAML or JSON (`sutler schema offline-progress`)."),
    ],
    as_json: Annotated[bool, prints("the new plan, as JSON (`sutler schema offline-plan`)")] = False,
    out: Annotated[Path | None, also_writes("the new plan")] = None,
) -> None:
    """Plan the rest of a running application anew: the speeds that were seen, and what a new plan saves.

    Exit status: 0 planned, 2 bad input, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.offline.reading import read_plan, read_progress
    from sutler.service.cli.views.offline.outcome import adjustment_view
    from sutler.service.offline.adjusting import adjusted

    check_target(out)
    document, report = read_plan(plan), read_progress(progress)
    made = in_background(
        lambda: adjusted(document, report, plan_id=uuid4(), created_at=datetime.now(UTC)),
        lambda seconds: f"{seconds:.1f} s · planning the rest of {document.application.name}",
    )
    deliver(made, adjustment_view(document, made), as_json=as_json, out=out)


@guarded
def run_plan(
    plan: OfflinePlanFile,
    format: Annotated[
        Literal["json", "sh"],
        typer.Option("--format", "-f", help="Steps as JSON (`sutler schema offline-schedule`), or a bash script."),
    ] = "json",
    host: Annotated[
        int | None, typer.Option("--host", metavar="N", help="Whose script, where a plan has several hosts.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_535, help="First port of the servers of a host.")
    ] = 8000,
    out: Output = None,
) -> None:
    """Say how to carry out an offline plan: which servers to start and to stop on which GPUs, step after step.

    Exit status: 0 written (warnings on stderr say what to look at before running it), 2 bad input, 3 nothing to run.
    """
    from sutler.service.cli.offline.reading import read_plan
    from sutler.service.offline.running import schedule_of, script_of

    check_target(out)
    if host is not None and format == "json":
        raise DocumentError.of("--host", "goes with --format sh: the JSON has all hosts", value=host)
    schedule = schedule_of(read_plan(plan), first_port=port)
    if format == "json":
        content = json_bytes(schedule.model_dump(mode="json", by_alias=True))
    else:
        content = script_of(schedule, host=host).encode()
    for warning in schedule.warnings:
        say(f"warning: {warning}")
    write_or_print(content, out)


def _factors(given: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """Factors by model, of MODEL=FACTOR; names may hold = themselves. Raises DocumentError."""
    from sutler.service.documents.rules import either

    factors: dict[str, float] = {}
    for text in given:
        name, mark, number = text.rpartition("=")
        factor = _number(number)
        if not mark or not 0 < factor <= MOST_TIMES_SLOWER:
            remedy = f"must be MODEL=FACTOR with a factor above 0 and at most {MOST_TIMES_SLOWER:g}, such as "
            raise DocumentError.of("--slower", f"{remedy}{names[0]}=1.3", value=text)
        if name not in names:
            raise DocumentError.of("--slower", f"is no model of this plan: use {either(names)}", value=name)
        if name in factors:
            raise DocumentError.of("--slower", "has two factors: give one", value=name)
        factors[name] = factor
    return factors


def _number(text: str) -> float:
    """0, which is no factor, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return 0.0
