"""`sutler trial`: a plan and the addresses of its replicas in, what they do and what that changes out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import guarded, refuse, say_all
from sutler.service.cli.terminal.input import read_plan
from sutler.service.cli.terminal.options import PlanFile
from sutler.service.cli.terminal.output import check_target, deliver
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.writing import write_file
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from sutler.service.library.trialling import Tell
    from sutler.service.trial.runs import TargetRun
    from sutler.service.trial.schemas import TrialDocument

T = TypeVar("T")


@guarded
def trial(
    plan: PlanFile,
    at: Annotated[
        list[str],
        typer.Option(metavar="REPLICA=URL", help="Where a replica of the plan answers; once for each to measure."),
    ],
    seconds: Annotated[
        float, typer.Option(min=1, max=3600, help="For how long requests are begun, in each run.")
    ] = 60.0,
    concurrency: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1024, help="Requests in flight; default: 1, the plan's batch, and one between."),
    ] = None,
    served_as: Annotated[
        list[str] | None,
        typer.Option(metavar="REPLICA=NAME", help="What the server calls the model; default: found out."),
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(help="Of the engines; default: as they say, or as planned.")
    ] = None,
    silence_s: Annotated[
        float, typer.Option(min=1, max=3600, help="A replica that sends nothing for so long has failed.")
    ] = 300.0,
    problem: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the plan was made of: plan it again with the calibration."),
    ] = None,
    name: Annotated[str, typer.Option(help="Of the calibration, as problems will call it.")] = "trial",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the runs, as `sutler profiles import` reads them.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and show, store nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Benchmark replicas that run already, calibrate the estimates by them, and say what that changes.

    Each replica gets, for every workload that is routed to it, random prompts of the planned lengths at several
    concurrencies. A key that the engines ask for is in SUTLER_REPLICA_KEY. It costs what the replicas cost while it
    takes; nothing is stored before the last run.

    Exit status: 0 measured, whatever it changes, 2 bad input, a replica that does not answer as it must, or runs that
    are refused, 3 the plan runs nothing, 4 no database, 130 interrupted.
    """
    from sutler.service.cli.views.trial import trial_view
    from sutler.service.library.problems import names_in
    from sutler.service.library.trialling import concluded, measure
    from sutler.service.main import opened_profiles
    from sutler.service.trial.runs import benchmark_run, table_of_runs

    check_target(out)
    document = read_plan(plan)
    if not document.replicas:
        refuse(f"{document.in_words} runs nothing: there is nothing to measure", Exit.INFEASIBLE)
    names_in(problem)  # what is wrong is said before an hour of measuring, as is a store that cannot be opened
    addresses, served = _pairs("--at", at), _pairs("--served-as", served_as or ())
    with opened_profiles():
        pass

    def measuring(tell: "Tell") -> "tuple[TargetRun, ...]":
        return measure(
            document,
            addresses,
            seconds=seconds,
            concurrencies=concurrency or (),
            served_as=served,
            engine_version=engine_version,
            silence_s=silence_s,
            tell=tell,
        )

    def concluding(tell: "Tell") -> "TrialDocument":
        return concluded(document, runs, name=name, problem=problem, keeps=not dry_run, tell=tell)

    runs = _telling("asking the replicas", measuring)
    if out is not None:
        write_file(out, table_of_runs(map(benchmark_run, runs)))
    found = _telling("fitting", concluding)
    deliver(found, trial_view(found), as_json=as_json)
    refused = [
        f"refused: {run.replica}, {run.workload}, {run.concurrency} at once: {reason}"
        for run in found.runs
        for reason in run.refused
    ]
    if not as_json:
        say_all(refused, "refused: ... and {} more reasons; --json has them all")
    raise typer.Exit(Exit.BAD_INPUT if refused or found.calibration is None else Exit.PLANNED)


def _telling(first: str, work: "Callable[[Tell], T]") -> T:
    """The work in the background, with the last of what it tells on stderr."""
    told = [first]
    return in_background(lambda: work(told.append), lambda seconds: f"{seconds:.0f} s · {told[-1]}")


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, each name once. Raises DocumentError."""
    found: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not name or not value or name in found:
            raise DocumentError.of(option, "give REPLICA=VALUE, each replica once", value=name)
        found[name] = value
    return found
