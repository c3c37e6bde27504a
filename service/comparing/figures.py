"""Figures of a comparison: a bar for each strategy, or a curve for each over budgets or loads.

matplotlib is the optional extra `plots`; it is imported when something is drawn.
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sutler.service.comparing.compared import value_of
from sutler.service.comparing.sweeping import expense_of
from sutler.service.documents.comparison import ComparedStrategy, ComparisonDocument, FrontierCurve, FrontierDocument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_AXES: Final = {
    "max_throughput": "throughput, requests/s",
    "min_makespan": "time for all requests, s",
    "min_cost": "cost, $/h",
    "min_power": "power, W",
}
_SUTLER: Final = "#1b6ca8"
_RIVAL: Final = "#9aa5b1"
_INCH_PER_BAR: Final = 0.32
_MARKERS: Final = "osD^v<>pP*Xhd"


def drawn(comparison: ComparisonDocument, file: Path) -> bytes:
    """The content of a file of that name: curves where there is a sweep, else bars."""
    from matplotlib import rc_context

    # the same comparison gives the same file, in which text stays text
    with rc_context({"svg.hashsalt": "sutler", "svg.fonttype": "none"}):
        figure = _bars(comparison) if comparison.frontier is None else _curves(comparison, comparison.frontier)
        content = BytesIO()
        kind = file.suffix.lower().removeprefix(".")
        figure.savefig(content, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()


def _bars(comparison: ComparisonDocument) -> "Figure":
    """Shows from the top: sutler, its rivals, and hatched those on supply that the market does not have."""
    from matplotlib.figure import Figure

    shown = [one for one in comparison.strategies if value_of(one) is not None]
    shown.sort(key=lambda one: one.own_market)
    figure = Figure(figsize=(9, 1.4 + _INCH_PER_BAR * max(1, len(shown))), layout="constrained")
    axes = figure.add_subplot()
    for place, one in enumerate(shown):
        length = value_of(one) or 0.0
        axes.barh(place, length, **_look(one))
        axes.annotate(_bar_words(one), (length, place), (4, 0), textcoords="offset points", va="center", size=8)
    axes.set_yticks(range(len(shown)), [one.name for one in shown])
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlim(left=0)
    axes.set(xlabel=_AXES[comparison.objective])
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    if any(one.own_market for one in shown):
        figure.supxlabel("hatched: on supply that the market does not have", size=8)
    return figure


def _look(one: ComparedStrategy) -> dict[str, Any]:
    colour = _SUTLER if one.family == "sutler" else _RIVAL
    return {"color": "white", "edgecolor": colour, "hatch": "///"} if one.own_market else {"color": colour}


def _bar_words(one: ComparedStrategy) -> str:
    value = f"{value_of(one):,.4g}"
    if one.ratio_to_sutler is None or one.family == "sutler":
        return value
    return f"{value} (sutler: × {one.ratio_to_sutler:.3g})"


def _curves(comparison: ComparisonDocument, frontier: FrontierDocument) -> "Figure":
    """Throughput by budget, or against what it takes where the load is given; dashed on supply that is not there.

    By budget, not by what is spent of it: between plans that spend less than they may, a line would promise rates
    that no plan reaches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    is_by_budget = frontier.swept == "budget_usd_per_hour"
    families = {one.name: one.family for one in comparison.strategies}
    for index, curve in enumerate(frontier.curves):
        points = _points(curve, comparison, is_by_budget=is_by_budget)
        if not points:
            continue
        is_sutler = families.get(curve.name) == "sutler"
        axes.plot(
            *zip(*points, strict=True),
            label=curve.name,
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            linestyle="--" if curve.own_market else "-",
            linewidth=2.4 if is_sutler else 1.0,
            color="black" if is_sutler else None,
            zorder=3 if is_sutler else 2,
        )
    spent = "power, W" if comparison.objective == "min_power" else "cost, $/h"
    axes.set(xlabel="budget, $/h" if is_by_budget else spent, ylabel="throughput, requests/s")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if axes.lines:
        figure.legend(loc="outside right upper", fontsize=8)
    if any(curve.own_market for curve in frontier.curves):
        figure.supxlabel("dashed: on supply that the market does not have", size=8)
    return figure


def _points(
    curve: FrontierCurve, comparison: ComparisonDocument, *, is_by_budget: bool
) -> Sequence[tuple[float, float]]:
    """(budget or expense, requests/s) where there is a plan, ascending."""
    found = (
        (point.at if is_by_budget else expense_of(point, comparison.objective), point.throughput_rps)
        for point in curve.points
    )
    return sorted((across, rate) for across, rate in found if across is not None and rate is not None)
