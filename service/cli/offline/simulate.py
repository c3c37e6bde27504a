"""`sutler offline simulate`: a plan in, planned beside simulated times out.

What is slow to import is imported when the command runs, so that --help is instant.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from sutler.service.cli.terminal.background import in_background
from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.options import OfflinePlanFile, prints
from sutler.service.cli.terminal.output import deliver
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
