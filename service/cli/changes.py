"""Options that change a problem: `--set`, and the ones with names of their own.

A comma separates what is planned side by side, an option given again is part of the same plan: `--exclude a,b` is
without the one and without the other, `--exclude a --exclude b` without both.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from sutler.service.documents.changes import Changes, parsed, separated, variants
from sutler.service.documents.errors import DocumentError

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
    typer.Option(
        metavar="NAME",
        help="Without this GPU, provider, offer (provider/offer_id), host:ID or machine:provider/ID.",
    ),
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
    folder: Path,
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
        choices.append([_without(names, data, folder) for names in _together(exclude)])
    if robust:
        choices.append([{"objective.robust": True}])
    return variants(choices)


def _together(given: Sequence[str]) -> list[tuple[str, ...]]:
    """What options given again name together, for each of what commas name apart."""
    return list(product(*([name.strip() for name in separated(text)] for text in given)))


def _without(names: Sequence[str], data: Mapping[str, Any], folder: Path) -> Changes:
    """GPUs are told from providers by the problem's catalogue, offers by their slash, hosts and machines by the word
    before the colon. Raises DocumentError."""
    found: dict[str, list[str]] = {"gpus": [], "offers": [], "providers": [], "hosts": [], "machines": []}
    for name in names:
        word, _, rest = name.partition(":")
        if word in ("host", "machine") and rest:
            kind, meant = f"{word}s", rest
        else:
            kind, meant = ("offers", name) if "/" in name else _gpu_or_provider(name, data, folder)
        found[kind].append(meant)
    return {f"market.filter.exclude.{kind}": names for kind, names in found.items() if names}


def _gpu_or_provider(name: str, data: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """What a name stands for, and as the market spells it. Raises DocumentError for one that is neither."""
    from sutler.solver.catalog import load_gpus, resolve_gpu
    from sutler.solver.errors import UnknownNameError

    own, edition = data.get("gpus"), data.get("catalog", "default")
    gpus = {*load_gpus("paper_table1" if edition == "paper_table1" else "default"), *(own or ())}
    if name in gpus:
        return "gpus", name
    providers = _providers(data, folder)
    if name.lower() in providers:
        return "providers", name
    try:
        return "gpus", resolve_gpu(name).slug
    except UnknownNameError:
        near = get_close_matches(name.lower(), [*gpus, *providers], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        remedy = (
            f"is no GPU of the catalogue and no provider; {hint}Offers are named provider/offer_id, hosts host:ID"
        )
        raise DocumentError.of("--exclude", remedy, value=name) from None


def _providers(data: Mapping[str, Any], folder: Path) -> set[str]:
    """Those that can be polled, and those of the problem's own snapshot."""
    from sutler.adapters.registry import PROVIDERS
    from sutler.service.documents.reading import read_document

    market = data.get("market")
    offers = market.get("offers") if isinstance(market, Mapping) else None
    if isinstance(offers, str):
        offers = read_document(folder / Path(offers).expanduser(), field="market.offers")
    rows = offers.get("offers") if isinstance(offers, Mapping) else None
    named = {str(row.get("provider")).lower() for row in rows or () if isinstance(row, Mapping)}
    stock = market.get("stock") if isinstance(market, Mapping) else None
    named |= {str(row.get("provider")).lower() for row in stock or () if isinstance(row, Mapping)}
    return named | set(PROVIDERS)
