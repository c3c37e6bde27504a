"""Throughput against cost in tables: a row per strategy, a column per budget or load."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import section, table_of
from sutler.service.cli.views.wording import number, objective_unit
from sutler.service.documents.comparison import FrontierCurve, FrontierDocument, FrontierPoint

MOST_COLUMNS: Final = 7  # of points side by side; more go into tables below
_SWEPT: Final = {"budget_usd_per_hour": ("budgets", "$/h"), "rate_rps": ("loads", "req/s")}


def frontier_view(frontier: FrontierDocument, objective: str) -> Iterator[RenderableType]:
    """Tables of the objective's value; a star marks what no strategy on the market as it is beats."""
    what, unit = _SWEPT[frontier.swept]
    title = f"At other {what} ({objective_unit(objective)}, by {unit}; * nothing serves as much for less)"
    at = sorted({point.at for curve in frontier.curves for point in curve.points})
    curves = [curve for curve in frontier.curves if _has_plan(curve)]
    tables = [_table(curves, at[first : first + MOST_COLUMNS], unit) for first in range(0, len(at), MOST_COLUMNS)]
    without = [curve.name for curve in frontier.curves if not _has_plan(curve)]
    parts = [part for table in tables for part in (Text(), table)][1:]
    if without:
        parts.append(Text(f"\nwithout any plan: {', '.join(without)}"))
    yield from section(title, *parts)


def _has_plan(curve: FrontierCurve) -> bool:
    return any(point.value is not None for point in curve.points)


def _table(curves: Sequence[FrontierCurve], at: Sequence[float], unit: str) -> Table:
    table = table_of(texts=("strategy",), numbers=[f"{number(value)} {unit}" for value in at])
    for own_market in (False, True):
        shown = [curve for curve in curves if curve.own_market == own_market]
        if own_market and shown:
            table.add_row(Text("on supply that the market does not have", style="dim"))
        for curve in shown:
            points = {point.at: point for point in curve.points}
            table.add_row(curve.name, *(_cell(points.get(value)) for value in at))
    return table


def _cell(point: FrontierPoint | None) -> str:
    if point is None or point.value is None:
        return "–"
    return f"{number(point.value)}{'*' if point.on_frontier else ' '}"
