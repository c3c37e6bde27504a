"""Options that change a problem: `--set`, and the ones with names of their own.

A comma separates what is planned side by side, an option given again is part of the same plan: `--exclude a,b` is
without the one and without the other, `--exclude a --exclude b` without both.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any

import typer

from sutler.service.documents.changes import Changes, parsed, separated, variants

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Another value at a path of the problem, as models.chat.precision=fp8; with commas, as "
        "budget_usd_per_hour=10,15,20, a table of plans side by side.",
    ),
]
Budget = Annotated[
    str | None, typer.Option(metavar="USD", help="USD per hour in place of the problem's; 10,15,20: side by side.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Without this GPU, provider, or offer (provider/offer_id)."),
]
Contract = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Offers under this contract: on_demand, reserved, spot.")
]
Region = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Offers of this region; US has US-TX too.")]
Precision = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Weights of all models: bf16, fp16, fp8, int8, int4, fp4.")
]
Robust = Annotated[bool, typer.Option("--robust", help="Plan for the low end of every rate's band.")]


def asked_variants(
    data: Mapping[str, Any],
    *,
    sets: Sequence[str] | None,
    budget: str | None,
    exclude: Sequence[str] | None,
    contract: Sequence[str] | None,
    region: Sequence[str] | None,
    precision: Sequence[str] | None,
    robust: bool,
) -> list[Changes]:
    """Every combination of what the options say of a problem; one without changes where they say nothing.

    Raises DocumentError.
    """
    choices: list[list[Changes]] = [parsed(text) for text in sets or ()]
    if budget is not None:
        choices.append(parsed(f"budget_usd_per_hour={budget}"))
    choices += [
        [{path: list(names)} for names in _together(given)]
        for path, given in (("market.filter.contracts", contract), ("market.filter.regions", region))
        if given
    ]
    if precision:
        choices.append(
            [{"models.*.precision": names[0] if len(names) == 1 else list(names)} for names in _together(precision)]
        )
    if exclude:
        choices.append([_without(names, data) for names in _together(exclude)])
    if robust:
        choices.append([{"objective.robust": True}])
    return variants(choices)


def _together(given: Sequence[str]) -> list[tuple[str, ...]]:
    """What options given again name together, for each of what commas name apart."""
    return list(product(*([name.strip() for name in separated(text)] for text in given)))


def _without(names: Sequence[str], data: Mapping[str, Any]) -> Changes:
    """GPUs are told from providers by the problem's catalogue, offers by their slash."""
    from sutler.solver.catalog import load_gpus

    own = data.get("gpus")
    gpus = {*load_gpus("paper_table1" if data.get("catalog") == "paper_table1" else "default"), *(own or ())}
    found: dict[str, list[str]] = {"gpus": [], "offers": [], "providers": []}
    for name in names:
        found["gpus" if name in gpus else "offers" if "/" in name else "providers"].append(name)
    return {f"market.filter.exclude.{kind}": names for kind, names in found.items() if names}
