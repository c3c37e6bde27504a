"""A comparison as people read it: sutler beside every rival; at other budgets or loads, too."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import inf
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import bar, headed, listed, section, table_of
from sutler.service.cli.views.plan import conflicts_table
from sutler.service.comparing.compared import value_of
from sutler.service.documents.comparison import (
    ComparedStrategy,
    ComparisonDocument,
    FrontierCurve,
    FrontierDocument,
    FrontierPoint,
)
from sutler.service.wording.plan_words import market_words
from sutler.service.wording.words import number, objective_unit, percent, price

NAME_AND_BAR_COLUMNS: Final = 43  # what the figures leave of 100 columns
BAR_COLUMNS: Final = (6, 16)  # chosen: at least eighths that compare, at most what the eye needs
INDENT: Final = "  "
Bars = Callable[[float], str]
# Below this a difference is within the gap to which plans are proven.
SAME_FRACTION: Final = 0.001
MOST_COLUMNS: Final = 7  # of points side by side; more go into tables below
_SWEPT: Final = {"budget_usd_per_hour": ("budgets", "$/h"), "rate_rps": ("loads", "req/s")}


def comparison_view(comparison: ComparisonDocument, *, most: int | None = None) -> Iterator[RenderableType]:
    """The parts to print, in order: who wins, by how much, with what, and what cannot be compared.

    `most`: only so many rivals, the best of them; None: all.
    """
    ran = [one for one in comparison.strategies if one.status != "not_applicable"]
    applicable = ran if most is None else _best(ran, comparison, most)
    by_market = {own: [one for one in applicable if one.own_market == own] for own in (False, True)}
    drawn = _bars_of(applicable)
    yield _headline(comparison)
    if comparison.strategies[0].conflicts:
        yield from section("What has to give", conflicts_table(comparison.strategies[0].conflicts))
    yield from section("On the market as it is", _results(by_market[False], comparison, drawn))
    if by_market[True]:
        title = "On supply that the market does not have (nobody could rent these)"
        yield from section(title, _results(by_market[True], comparison, drawn))
    if comparison.frontier is not None:
        yield from frontier_view(comparison.frontier, comparison.objective)
    if any(one.gpus for one in applicable):
        yield from section("What they rent", _fleets(applicable))
    if len(applicable) < len(ran):
        left = len(ran) - len(applicable)
        yield Text(f"\nThe best {len(applicable) - 1} rivals are shown; --all shows {left} more, --json has all.")
    yield from listed("Without a plan", _by_reason(one for one in applicable if one.reason is not None))
    others = [one for one in comparison.strategies if one.status == "not_applicable" and most is None]
    yield from listed("Not applicable", _by_reason(others))
    yield from listed("What they do", _described(applicable))
    yield from listed("Notes", comparison.notes)


def _best(ran: Sequence[ComparedStrategy], comparison: ComparisonDocument, most: int) -> list[ComparedStrategy]:
    """Sutler, those whose plans do not stand, and the best rivals on the market as it is, in their order."""
    sign = -1.0 if comparison.objective == "max_throughput" else 1.0

    def rank(one: ComparedStrategy) -> tuple[bool, float]:
        value = value_of(one)
        return one.own_market, inf if value is None else sign * value

    rivals = sorted((one for one in ran[1:] if one.status != "rejected"), key=rank)
    kept = {one.name for one in (ran[0], *rivals[:most])}
    return [one for one in ran if one.name in kept or one.status == "rejected"]


def claim(comparison: ComparisonDocument) -> str:
    """One sentence: what sutler's plan is, and by how much it beats the best rival on the same supply."""
    sutler = comparison.strategies[0]
    value = value_of(sutler)
    if value is None:
        return _no_plan(sutler)
    achieved = _achieved(sutler, comparison.objective, value)
    best = next((one for one in comparison.strategies if one.name == comparison.best_rival), None)
    rival_value = None if best is None else value_of(best)
    if best is None or rival_value is None:
        return f"{achieved}; no rival has a plan on the same supply"
    equals = [one.name for one in comparison.strategies[1:] if one is not best and _ties(one, value)]
    others = "the best of the others" if equals else "the best rival"
    named = f"{others} on the same supply, {best.name} ({_amount(rival_value, comparison.objective)})"
    if equals:
        achieved = f"{achieved}, as {' and '.join(equals)} {'does' if len(equals) == 1 else 'do'}"
    better, change = _difference(value, rival_value, comparison.objective)
    if abs(change) < SAME_FRACTION:
        return f"{achieved}: as good as {named}"
    if not better:
        worse = percent(abs(change)) if rival_value else _amount(value - rival_value, comparison.objective)
        return f"{achieved}, {worse} worse than {named}: {_way_to_better(sutler, best)}"
    return f"{achieved}: {_advantage(comparison.objective, percent(abs(change)))} {named}"


def _ties(one: ComparedStrategy, value: float) -> bool:
    """Whether a strategy is as good on the same supply; those that do just what sutler does are."""
    own = value_of(one)
    return own is not None and not one.own_market and abs(_difference(value, own, "")[1]) < SAME_FRACTION


def _headline(comparison: ComparisonDocument) -> Text:
    sutler = comparison.strategies[0]
    wins = value_of(sutler) is not None and sutler.status == "optimal"
    ran = [one for one in comparison.strategies if one.status != "not_applicable"]
    own = sum(one.own_market for one in ran)
    apart = f", {own} of them on a market of their own" if own else ""
    shorter = "" if comparison.objective == "max_throughput" else "; shorter bars are better"
    seconds = sum(one.seconds for one in ran)
    strategies = "1 strategy" if len(ran) == 1 else f"{len(ran)} strategies"
    return headed(
        claim(comparison),
        f"{strategies} with the same rates and limits{apart}, in {seconds:.1f} s",
        market_words(comparison.market),
        f"ratio: how many times better sutler is{shorter}",
        style="bold green" if wins else "bold yellow",
    )


def _no_plan(sutler: ComparedStrategy) -> str:
    if sutler.status == "infeasible":
        return "Infeasible: no plan meets every limit"
    if sutler.status == "unknown":
        return "sutler found no plan before the time limit: raise it with --time-limit-s"
    return f"sutler has no plan: {sutler.reason}"


def _achieved(sutler: ComparedStrategy, objective: str, value: float) -> str:
    amount = number(value)
    money = f" for {price(sutler.cost_usd_per_hour)} $/h"
    return {
        "max_throughput": f"sutler serves {amount} requests/s{money}",
        "min_makespan": f"sutler is done in {amount} s{money}",
        "min_cost": f"sutler carries the load for {amount} $/h",
        "min_power": f"sutler carries the load with {amount} W{money}",
    }[objective]


def _way_to_better(sutler: ComparedStrategy, best: ComparedStrategy) -> str:
    if best.allowed_beyond:
        return f"{' and '.join(best.allowed_beyond)} lets sutler do as it does"
    if sutler.status == "feasible":
        return "its search was ended early, raise --time-limit-s"
    return "the gap that was asked for allows that, lower solver.relative_gap"


def _difference(value: float, rival: float, objective: str) -> tuple[bool, float]:
    """Whether sutler is better, and its value relative to the rival's, less one; a rival of value 0 is free."""
    change = (value / rival if rival else 1.0 if value == rival else inf) - 1.0
    return (change > 0 if objective == "max_throughput" else change < 0), change


def _advantage(objective: str, by: str) -> str:
    return {
        "max_throughput": f"{by} more than",
        "min_makespan": f"{by} less time than",
        "min_cost": f"{by} cheaper than",
        "min_power": f"{by} less power than",
    }[objective]


def _amount(value: float, objective: str) -> str:
    return f"{number(value)} {objective_unit(objective)}"


def _results(strategies: Sequence[ComparedStrategy], comparison: ComparisonDocument, drawn: Bars) -> Table:
    """A row per strategy below the name of its family; the value's own unit is not shown twice."""
    unit = objective_unit(comparison.objective)
    others = [heading for heading in ("$/h", "W") if heading != unit]
    table = table_of(texts=("strategy", ""), numbers=(unit, *others, "ratio", "seconds"), notes=("status",))
    table.columns[1].no_wrap, table.dispensable = True, (1,)
    for family in dict.fromkeys(one.family for one in strategies):
        if family != "sutler":
            table.add_row(Text(family, style="dim"))
        for one in (one for one in strategies if one.family == family):
            table.add_row(*_row(one, others, drawn), style="bold" if family == "sutler" else None)
    return table


def _bars_of(strategies: Sequence[ComparedStrategy]) -> Bars:
    """Bars on one scale, so that they compare; the longer the names are, the shorter."""
    top = max((value for one in strategies if (value := value_of(one)) is not None), default=0.0)
    longest = len(INDENT) + max(len(one.name) for one in strategies)
    least, most = BAR_COLUMNS
    return partial(bar, top=top, columns=max(least, min(most, NAME_AND_BAR_COLUMNS - longest)))


def _row(one: ComparedStrategy, others: Sequence[str], drawn: Bars) -> list[str]:
    value = value_of(one)
    watts = "–" if one.power_watts is None else f"{one.power_watts:,.0f}"
    money = {"$/h": price(one.cost_usd_per_hour), "W": watts}
    return [
        one.name if one.family == "sutler" else f"{INDENT}{one.name}",
        "" if value is None else drawn(value),
        number(value),
        *(money[heading] if value is not None else "–" for heading in others),
        number(one.ratio_to_sutler),
        f"{one.seconds:.2f}",
        _status(one),
    ]


def _status(one: ComparedStrategy) -> str:
    gap = None if one.objective is None else one.objective.relative_gap
    if one.status == "feasible" and gap is not None:
        return f"gap {percent(gap)}"
    return {"unknown": "no plan yet", "feasible": "feasible", "rejected": "defective"}.get(one.status, one.status)


def _fleets(strategies: Sequence[ComparedStrategy]) -> Table:
    table = table_of(texts=("strategy", "GPUs"), numbers=("replicas",))
    for one in strategies:
        if one.gpus:
            gpus = ", ".join(f"{count} × {gpu}" for gpu, count in one.gpus.items())
            table.add_row(one.name, gpus, str(one.replicas))
    return table


def _by_reason(strategies: Iterable[ComparedStrategy]) -> Iterator[str]:
    """One sentence for all that share a reason."""
    names: dict[str | None, list[str]] = {}
    for one in strategies:
        names.setdefault(one.reason, []).append(one.name)
    for reason, named in names.items():
        yield f"{', '.join(named)}: {reason}"


def _described(strategies: Sequence[ComparedStrategy]) -> Iterator[str]:
    """One sentence for each, or for all those that differ only in what is after the slash."""

    def kind(one: ComparedStrategy) -> tuple[str, str]:
        return one.name.partition("/")[0], one.source

    for (name, source), members in groupby(strategies, key=kind):
        first, *others = members
        what = f"{name}/*: {first.title}, and so on" if others else f"{first.name}: {first.title}"
        yield what + (f" ({source})" if source else "")


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
