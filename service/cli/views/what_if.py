"""Variants of a problem as people read them: a row each, the problem as it is first."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import headed, listed, section, table_of
from sutler.service.cli.views.plan import conflicts_table
from sutler.service.documents.plan import ConflictDocument
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument
from sutler.service.wording.plan_words import market_words
from sutler.service.wording.words import counted, fleet, number, objective_unit, percent, price

AS_IT_IS: Final = "as it is"
HEADINGS: Final = {
    "budget_usd_per_hour": "budget $/h",
    "market.filter.contracts": "contract",
    "market.filter.regions": "region",
    "market.filter.exclude.providers": "without",
    "market.filter.exclude.gpus": "without",
    "market.filter.exclude.offers": "without",
    "market.filter.exclude.hosts": "without",
    "market.filter.exclude.machines": "without",
    "models.*.precision": "precision",
    "objective.robust": "robust",
}


def what_if_view(found: WhatIfDocument) -> Iterator[RenderableType]:
    """The parts to print, in order: what each variant comes to, what it rents, and why one has no plan."""
    every = (found.base, *found.variants)
    seconds = sum(one.seconds for one in every)
    yield headed(
        f"The problem as it is and {counted(len(found.variants), 'variant')} of it",
        "" if found.market is None else market_words(found.market),
        f"Planned in {seconds:.1f} s; none of these plans is issued, each is proven to its gap",
        style="bold",
    )
    yield from section("What if", _results(every))
    if any(one.rentals for one in every):
        yield from section("What they rent", _fleets(every))
    for conflicts, names in _conflicts(every).items():
        yield from section(f"What has to give with {' or '.join(names)}", conflicts_table(conflicts))
    yield from listed("Without a market", (f"{_named(one)}: {one.reason}" for one in every if one.reason))
    apart = (f"{_named(one)}: {note}" for one in found.variants for note in one.notes)
    yield from listed("Notes", (*found.notes, *apart))


def _conflicts(every: Iterable[VariantDocument]) -> dict[tuple[ConflictDocument, ...], list[str]]:
    """What has to give, and the variants in which it is the same."""
    found: dict[tuple[ConflictDocument, ...], list[str]] = {}
    for one in every:
        if one.conflicts:
            found.setdefault(tuple(one.conflicts), []).append(_named(one))
    return found


def _results(every: Sequence[VariantDocument]) -> Table:
    """The value's own unit is not shown twice."""
    units = {objective_unit(one.objective.kind) for one in every if one.objective is not None}
    unit = units.pop() if len(units) == 1 else "value"
    others = [heading for heading in ("req/s", "$/h", "W") if heading != unit]
    table = table_of(texts=_headings(every), numbers=(unit, "better by", *others, "gap"), notes=("status",))
    for one in every:
        table.add_row(*_labels(one, every), *_row(one, unit, others), style=None if one.changes else "bold")
    return table


def _fleets(every: Sequence[VariantDocument]) -> Table:
    table = table_of(texts=(*_headings(every), "machines"), numbers=("replicas",))
    for one in every:
        if one.rentals:
            table.add_row(*_labels(one, every), fleet(one.rentals), str(one.replicas))
    return table


def _heading(path: str) -> str:
    return HEADINGS.get(path, path)


def _headings(every: Iterable[VariantDocument]) -> list[str]:
    """One for each thing that changes."""
    return list(dict.fromkeys(_heading(path) for one in every for path in one.changes)) or ["what"]


def _labels(one: VariantDocument, every: Iterable[VariantDocument]) -> list[Text]:
    """What a variant has in each of these columns."""
    cells = {heading: list[str]() for heading in _headings(every)}
    for path, value in one.changes.items():
        cells[_heading(path)].append(_value(value))
    texts = [Text(", ".join(values)) for values in cells.values()]
    return texts if one.changes else [Text(AS_IT_IS), *texts[1:]]


def _row(one: VariantDocument, unit: str, others: Iterable[str]) -> list[str]:
    value = None if one.objective is None else one.objective.value
    gap = None if one.objective is None else one.objective.relative_gap
    own = "" if one.objective is None or unit != "value" else f" {objective_unit(one.objective.kind)}"
    figures = {
        "req/s": number(one.throughput_rps),
        "$/h": price(one.cost_usd_per_hour),
        "W": "–" if one.power_watts is None else f"{one.power_watts:,.0f}",
    }
    better = "" if not one.changes else "–" if one.better_fraction is None else percent(one.better_fraction)
    return [
        f"{number(value)}{own}",
        better,
        *(figures[heading] for heading in others),
        "–" if gap is None else percent(gap),
        one.status.replace("_", " "),
    ]


def _named(one: VariantDocument) -> str:
    """`budget $/h 20, precision fp8`."""
    words = (f"{_heading(path)} {_value(value)}" for path, value in one.changes.items())
    return ", ".join(words) or AS_IT_IS


def _value(value: object) -> str:
    if value is None:
        return "left out"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "any"
    return str(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
