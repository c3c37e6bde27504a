"""`sutler simulate`: a plan and traffic in, what its users would see out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.input import read_plan
from sutler.service.cli.terminal.options import PlanFile
from sutler.service.cli.terminal.output import check_plots, deliver
from sutler.service.documents.errors import DocumentError
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from sutler.service.documents.traces import RequestTrace

PLOTS_EXTRA = "pip install 'sutler[plots]'"


@guarded
def simulate(
    plan: PlanFile,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            help="Replay recorded requests: a CSV with TIMESTAMP, ContextTokens, GeneratedTokens; MODEL=FILE, "
            "once for each, where the plan serves several models."
        ),
    ] = None,
    poisson: Annotated[bool, typer.Option("--poisson", help="Arrivals at random at the plan's rates.")] = False,
    duration_s: Annotated[
        float | None, typer.Option(help="With --poisson: seconds of arrivals; default 600.")
    ] = None,
    lengths: Annotated[
        list[Path] | None,
        typer.Option(help="With --poisson: draw the lengths from these recorded requests (as --trace)."),
    ] = None,
    at_rated_load: Annotated[
        bool, typer.Option("--at-rated-load", help="With --trace: faster or slower, at the plan's own rate.")
    ] = False,
    load_multiple: Annotated[float, typer.Option(help="That many times the requests per second.")] = 1.0,
    routing: Annotated[
        Literal["round_robin", "random", "least_loaded"],
        typer.Option(help="How a gateway divides requests by the plan's fractions."),
    ] = "round_robin",
    roles: Annotated[
        Literal["fixed", "mixed_pool", "opportunistic"],
        typer.Option(
            help="When prefill and decode replicas serve whole requests: never, where a queue is long, where one is "
            "idle."
        ),
    ] = "fixed",
    scheduling: Annotated[
        Literal["chunked", "prefill_first"], typer.Option(help="How engines put prompts into steps.")
    ] = "chunked",
    max_batched_tokens: Annotated[int, typer.Option(min=16, help="Most tokens of one step.")] = 2048,
    warm_up_s: Annotated[
        float | None, typer.Option(min=0, help="Leave out requests before this; default: the first tenth.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0,
    lose: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=NAME@SECONDS",
            help="Lose something on the way: provider=vastai@120, place=vastai/US-TX@120, "
            "machine=vastai/123/0@120 or interruptible@120, named as in the plan's losses.",
        ),
    ] = None,
    detection_s: Annotated[
        float | None,
        typer.Option(min=0, help="With --lose: until requests are sent elsewhere; default: the plan's, else 60."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help=f"Also draw PNG files and a page of them ({PLOTS_EXTRA}).")
    ] = None,
) -> None:
    """Replay a plan, request by request: rates, latencies, goodput and how busy each replica is.

    Exit status: 0 simulated, whether or not limits are met (`meets_all_limits` in the JSON), 2 bad input, 3 nothing
    to run.
    """
    from sutler.service.cli.views.simulation import simulation_view
    from sutler.service.simulation.figures import draw
    from sutler.service.simulation.losing import losing_of
    from sutler.service.simulation.simulated import Choices, simulated
    from sutler.service.simulation.traffic import DEFAULT_DURATION_S, PoissonTraffic, TraceTraffic

    check_plots(plots)
    document = read_plan(plan)
    if not document.replicas:
        refuse(f"{document.in_words} runs nothing: there is nothing to simulate", Exit.INFEASIBLE)
    seconds = DEFAULT_DURATION_S if duration_s is None else duration_s
    wrong = {
        "give --trace FILE or --poisson, one of the two": bool(trace) == poisson,
        "--load-multiple must be above 0": not 0 < load_multiple < inf,
        "--at-rated-load goes with --trace; --poisson draws at the plan's rate anyway": poisson and at_rated_load,
        "--duration-s must be above 0": poisson and not 0 < seconds < inf,
        "--detection-s goes with --lose": lose is None and detection_s is not None,
        "--lengths and --duration-s go with --poisson; a trace has its own": not poisson
        and (lengths or duration_s is not None),
    }
    for reason in (reason for reason, is_wrong in wrong.items() if is_wrong):
        raise typer.BadParameter(reason)
    names = [model.name for model in document.models]
    traffic = (
        PoissonTraffic(seconds, load_multiple, seed, recorded(names, lengths or (), "--lengths"))
        if poisson
        else TraceTraffic(recorded(names, trace or (), "--trace"), at_rated_load, load_multiple)
    )
    losing = None if lose is None else losing_of(lose, detection_s, field="--lose")
    choices = Choices(routing, scheduling, max_batched_tokens, seed, warm_up_s, losing, roles)
    found = simulated(document, traffic, choices)
    if plots is not None:
        say(f"plots: {draw(found, plots)}")
    deliver(found.resource, simulation_view(found.resource), as_json=as_json)


def recorded(names: Sequence[str], files: Sequence[Path], option: str) -> "dict[str, RequestTrace]":
    """Requests by model, of files given as [MODEL=]FILE; where there is one model, it needs no name."""
    from sutler.service.documents.traces import read_trace_file

    found: dict[str, RequestTrace] = {}
    for file in files:
        model, mark, path = str(file).partition("=")
        if not (mark and model in names):
            model, path = (names[0] if names else ""), str(file)
            if len(names) > 1:
                remedy = f"say whose requests these are, as {names[0]}=FILE; the plan serves {', '.join(names)}"
                raise DocumentError.of(option, remedy, value=str(file))
        if model in found:
            raise DocumentError.of(option, f"{model} has two files: give one", value=path)
        found[model] = read_trace_file(Path(path), field=option)
    return found
