"""`sutler compare`: one problem in, sutler's plan beside those of every other strategy out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import exit_of_plan, guarded, say
from sutler.service.cli.terminal.input import folder_of, read_problem
from sutler.service.cli.terminal.options import ProblemFile, also_draws, also_writes, prints
from sutler.service.cli.terminal.output import check_plot, check_target, deliver
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.writing import write_file
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from sutler.service.comparing.sweeping import Range
    from sutler.service.documents.comparison import ComparisonDocument
    from sutler.service.translation.to_problem import Translation
    from sutler.solver.strategies.comparing import Ran


MOST_RIVALS: Final = 5  # chosen: what is compared at a glance


@guarded
def compare(
    problem: ProblemFile,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            "--strategy",
            metavar="NAME",
            help="Compare with these alone: names, families or patterns such as 'homogeneous/*'; several with commas "
            "or options.",
        ),
    ] = None,
    time_limit_s: Annotated[
        float | None, typer.Option(help="Seconds for each strategy at most; wins over solver.time_limit_s.")
    ] = None,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Also at other budgets, or loads where the load is given.")
    ] = False,
    points: Annotated[int | None, typer.Option(help="With --pareto: how many budgets or loads; default 6.")] = None,
    first: Annotated[
        float | None,
        typer.Option("--from", help="With --pareto: least budget, $/h, or load, requests/s; default: half."),
    ] = None,
    last: Annotated[
        float | None, typer.Option("--to", help="With --pareto: largest budget or load; default: the double.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Show every strategy, not the best five rivals alone.")
    ] = False,
    as_json: Annotated[bool, prints("the comparison, as JSON (`sutler schema comparison`)")] = False,
    out: Annotated[Path | None, also_writes("the comparison")] = None,
    plot: Annotated[Path | None, also_draws("it, as .png or .svg")] = None,
) -> None:
    """Run every planning strategy on one problem, with the same rates, and show sutler beside each of them.

    Exit status, of sutler's own plan: 0 planned, 2 bad input, 3 infeasible (what must give is printed), 4 no market
    data, 5 time limit without any plan, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.views.comparison import comparison_view
    from sutler.service.comparing.figures import drawn
    from sutler.service.library.problems import problem_document, translated

    check_target(out)
    check_plot(plot, (".png", ".svg"))
    wanted = _range(points, first, last, is_asked_for=pareto)
    names = _names(only or ())
    limit = {} if time_limit_s is None else {"solver.time_limit_s": time_limit_s}
    document = problem_document(read_problem(problem), {"solver.alternatives": False, **limit})
    compared = _compared(translated(document, folder_of(problem)), names, wanted)
    most = None if everybody or names is not None else MOST_RIVALS
    deliver(compared, comparison_view(compared, most=most), as_json=as_json, out=out)
    if plot is not None:
        write_file(plot, drawn(compared, plot))
    raise typer.Exit(exit_of(compared))


def exit_of(compared: "ComparisonDocument") -> Exit:
    """That of sutler's plan; a plan that does not stand, whoever's it is, is our fault and is told on stderr."""
    rejected = [one for one in compared.strategies if one.status == "rejected"]
    for one in rejected:
        say(f"{one.name}: {one.reason}")
    return Exit.OUR_FAULT if rejected else exit_of_plan(compared.strategies[0].status)


def _range(points: int | None, first: float | None, last: float | None, *, is_asked_for: bool) -> "Range | None":
    """The sweep that is asked for; None: none is."""
    given = {"--points": points, "--from": first, "--to": last}
    if not is_asked_for:
        lonely = [option for option, value in given.items() if value is not None]
        if lonely:
            raise typer.BadParameter(f"{', '.join(lonely)}: goes with --pareto")
        return None
    from sutler.service.comparing.sweeping import DEFAULT_POINTS, Range

    return Range(DEFAULT_POINTS if points is None else points, first, last)


def _names(given: Sequence[str]) -> tuple[str, ...] | None:
    """The strategies to run beside sutler, which always runs; None: all."""
    names = [name.strip() for text in given for name in text.split(",")]
    if "" in names:
        raise DocumentError.of("--only", "name a strategy, a family or a pattern", value="")
    return tuple(names) or None


def _compared(
    translation: "Translation", names: tuple[str, ...] | None, wanted: "Range | None"
) -> "ComparisonDocument":
    from sutler.service.cli.views.progress import strategies_line
    from sutler.service.studies.answering import comparison
    from sutler.service.studies.questions import Comparison

    done: list[Ran] = []
    expected: list[int] = []

    def work() -> "ComparisonDocument":
        asked = Comparison(translation, names, wanted)
        return comparison(asked, on_ran=done.append, on_expected=expected.append)

    return in_background(work, lambda seconds: strategies_line(seconds, tuple(done), sum(expected)))
