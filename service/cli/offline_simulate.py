"""`sutler offline simulate`: a plan in, what becomes of it with other lengths or slower models out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from sutler.service.cli.terminal.exits import guarded

MOST_TIMES_SLOWER = 1000.0


@guarded
def simulate(
    plan: Annotated[Path, typer.Argument(help="Plan file (`sutler offline plan --json`); - reads standard input.")],
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Draw other lengths; default: the plan's own.")
    ] = None,
    slower: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=FACTOR",
            help="That model's steps take so many times as long; repeatable.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON (`sutler schema offline-simulation`).")
    ] = False,
) -> None:
    """Run the schedule of a plan again and show planned beside simulated times.

    Exit status: 0 simulated, 2 bad input, 130 interrupted, 1 our fault.
    """
    from sutler.service.cli.offline_reading import read_plan
    from sutler.service.cli.terminal.background import in_background
    from sutler.service.cli.terminal.output import show, write_stdout
    from sutler.service.cli.views.offline_outcome import simulation_view
    from sutler.service.offline.simulating import simulated

    document = read_plan(plan)
    factors = _factors(slower or (), [model.name for model in document.models])
    found = in_background(
        lambda: simulated(document, seed=seed, slower=factors), lambda seconds: f"{seconds:.1f} s · simulating"
    )
    if as_json:
        write_stdout((found.model_dump_json(by_alias=True, indent=2) + "\n").encode())
    else:
        show(*simulation_view(found))


def _factors(given: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    """By model, of MODEL=FACTOR; names may hold = themselves. Raises DocumentError."""
    from sutler.service.documents.errors import DocumentError
    from sutler.service.documents.rules import either

    factors: dict[str, float] = {}
    for text in given:
        name, mark, number = text.rpartition("=")
        factor = _number(number)
        if not mark or factor is None or not 0 < factor <= MOST_TIMES_SLOWER:
            remedy = f"must be MODEL=FACTOR with a factor above 0 and at most {MOST_TIMES_SLOWER:g}, such as "
            raise DocumentError.of("--slower", f"{remedy}{names[0]}=1.3", value=text)
        if name not in names:
            raise DocumentError.of("--slower", f"is no model of this plan: use {either(names)}", value=name)
        if name in factors:
            raise DocumentError.of("--slower", "has two factors: give one", value=name)
        factors[name] = factor
    return factors


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
