"""`sutler simulate`: a plan and traffic in, what its users would see out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sutler.service.cli.terminal.exits import Exit, guarded, say

if TYPE_CHECKING:
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.traces import RequestTrace
    from sutler.service.simulation.traffic import Drawn, Replayed

PLOTS_EXTRA = "pip install 'sutler[plots]'"


@guarded
def simulate(
    plan: Annotated[Path, typer.Argument(help="Plan file (`sutler plan --json`); - reads standard input.")],
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
    scheduling: Annotated[
        Literal["chunked", "prefill_first"], typer.Option(help="How engines put prompts into steps.")
    ] = "chunked",
    max_batched_tokens: Annotated[int, typer.Option(min=16, help="Most tokens of one step.")] = 2048,
    warm_up_s: Annotated[
        float | None, typer.Option(min=0, help="Leave out requests before this; default: the first tenth.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help=f"Also draw PNG files and a page of them ({PLOTS_EXTRA}).")
    ] = None,
) -> None:
    """Replay a plan, request by request: rates, latencies, goodput and how busy each replica is.

    Exit status: 0 simulated, whether or not limits are met (`meets_all_limits` in the JSON), 2 bad input, 3 nothing
    to run.
    """
    from sutler.service.cli.export import read_plan
    from sutler.service.cli.terminal.output import show, write_stdout
    from sutler.service.cli.views.simulation import simulation_view
    from sutler.service.simulation.figures import check_plots, draw
    from sutler.service.simulation.simulated import Choices, simulated

    if plots is not None:
        check_plots(plots)
    document = read_plan(plan)
    if not document.replicas:
        say(f"error: a plan that is {document.status} runs nothing: there is nothing to simulate")
        raise typer.Exit(Exit.INFEASIBLE)
    traffic = _traffic(
        document,
        trace=trace or (),
        lengths=lengths or (),
        poisson=poisson,
        duration_s=duration_s,
        at_rated_load=at_rated_load,
        load_multiple=load_multiple,
        seed=seed,
    )
    found = simulated(document, traffic, Choices(routing, scheduling, max_batched_tokens, seed, warm_up_s))
    if plots is not None:
        page = draw(found, plots)
        say(f"plots: {page}")
    if as_json:
        write_stdout((found.resource.model_dump_json(by_alias=True, indent=2) + "\n").encode())
    else:
        show(*simulation_view(found.resource))


def _traffic(
    plan: "PlanDocument",
    *,
    trace: Sequence[Path],
    lengths: Sequence[Path],
    poisson: bool,
    duration_s: float | None,
    at_rated_load: bool,
    load_multiple: float,
    seed: int,
) -> "Replayed | Drawn":
    from sutler.service.simulation.traffic import DEFAULT_DURATION_S, Drawn, Replayed

    names = [model.name for model in plan.models]
    if bool(trace) == poisson:
        raise typer.BadParameter("give --trace FILE or --poisson, one of the two")
    if load_multiple <= 0 or not load_multiple < float("inf"):
        raise typer.BadParameter("--load-multiple must be above 0")
    if poisson:
        if at_rated_load:
            raise typer.BadParameter("--at-rated-load goes with --trace; --poisson draws at the plan's rate anyway")
        seconds = DEFAULT_DURATION_S if duration_s is None else duration_s
        if not 0 < seconds < float("inf"):
            raise typer.BadParameter("--duration-s must be above 0")
        return Drawn(seconds, load_multiple, seed, recorded(names, lengths, "--lengths"))
    if lengths or duration_s is not None:
        raise typer.BadParameter("--lengths and --duration-s go with --poisson; a trace has its own")
    return Replayed(recorded(names, trace, "--trace"), at_rated_load, load_multiple)


def recorded(names: Sequence[str], files: Sequence[Path], option: str) -> "dict[str, RequestTrace]":
    """Requests by model, of files given as [MODEL=]FILE; where there is one model, it needs no name."""
    from sutler.service.documents.errors import DocumentError
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
