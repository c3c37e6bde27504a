"""Throughput against cost: all strategies at several budgets, or, where the load is given, at several loads.

Flow: a problem and sutler's plan for it -> sweep_of -> frontier_of -> the comparison document.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.service.comparing.compared import figures_of, plan_made, status_of
from sutler.service.documents.comparison import FrontierCurve, FrontierDocument, FrontierPoint, Swept
from sutler.service.documents.errors import DocumentError
from sutler.solver.plan import Plan
from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.strategies.comparing import Ran

DEFAULT_POINTS: Final = 6  # chosen: each point solves the problem once for every strategy
MOST_POINTS: Final = 50  # chosen: more are no clearer, and take hours
LEAST: Final = 1e-3
MOST: Final = 1e7  # as in a problem (service/documents/fields.py)
# Plans are proven to this gap unless less is asked for: smaller differences say nothing.
TOLERANCE_FRACTION: Final = 0.001
# Chosen: the range where none is given, as multiples of the budget or load, or, where any amount may be spent, of
# what is.
_AROUND: Final = (0.5, 2.0)
_UP_TO: Final = (0.25, 1.0)
_SIGNIFICANT_DIGITS: Final = 6  # of a budget or load: prices are not known any better


@dataclass(frozen=True, slots=True)
class Range:
    """What the caller asked for; None: as the problem suggests."""

    points: int = DEFAULT_POINTS
    first: float | None = None
    last: float | None = None

    def __post_init__(self) -> None:
        """Raises DocumentError for what no sweep can be made of."""
        if not 2 <= self.points <= MOST_POINTS:
            remedy = f"a sweep has 2 to {MOST_POINTS} points"
            raise DocumentError.of("--points", remedy, value=self.points)
        for option, value in (("--from", self.first), ("--to", self.last)):
            if value is not None and not LEAST <= value <= MOST:  # NaN is not, either
                raise DocumentError.of(option, f"must be a number from {LEAST:g} to {MOST:,.0f}", value=value)
        if self.first is not None and self.last is not None:
            _check_ascending(self.first, self.last)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The values that a budget (USD per hour) or a load (requests/s) takes, ascending."""

    swept: Swept
    values: tuple[float, ...]


def sweep_of(problem: Problem, sutler: Plan | None, wanted: Range) -> Sweep | None:
    """Evenly spaced values around the problem's own; None where there are none to go by and none were given.

    Raises DocumentError where what was given is beyond the rest.
    """
    is_budget = problem.objective.maximises_rate
    swept: Swept = "budget_usd_per_hour" if is_budget else "rate_rps"
    own = problem.budget_usd_per_hour if is_budget else problem.total_demand
    spent = None if sutler is None else sutler.cost_usd_per_hour
    centre, (low, high) = (own, _AROUND) if own else (spent, _UP_TO)
    first = wanted.first or (centre and low * centre)
    last = wanted.last or (centre and high * centre)
    if not first or not last:
        return None
    _check_ascending(first, last)
    values = (float(f"{value:.{_SIGNIFICANT_DIGITS}g}") for value in np.linspace(first, last, wanted.points))
    return Sweep(swept, tuple(values))


def problem_at(problem: Problem, swept: Swept, value: float) -> Problem:
    """The problem with another budget, or with the same mix at another load."""
    if swept == "budget_usd_per_hour":
        return replace(problem, budget_usd_per_hour=value)
    factor = value / problem.total_demand
    models = (
        replace(model, workloads=tuple(replace(w, demand=factor * w.demand) for w in model.workloads))
        for model in problem.models
    )
    return replace(problem, models=tuple(models))


def frontier_of(problem: Problem, sweep: Sweep, run: Callable[[Problem], Sequence[Ran]]) -> FrontierDocument:
    """What `run` makes of the problem at every value; strategies that are never applicable are left out."""
    points: dict[tuple[str, bool], list[FrontierPoint]] = {}
    for value in sweep.values:
        for ran in run(problem_at(problem, sweep.swept, value)):
            if status_of(ran) != "not_applicable":
                points.setdefault((ran.strategy.name, ran.strategy.own_market), []).append(_point(ran, value))
    others = [point for (_, is_own), found in points.items() if not is_own for point in found]

    def marked(point: FrontierPoint) -> FrontierPoint:
        return point.model_copy(update={"on_frontier": _is_unbeaten(point, others, problem.objective.kind)})

    curves = (
        FrontierCurve(name=name, own_market=is_own, points=tuple(found if is_own else map(marked, found)))
        for (name, is_own), found in points.items()
    )
    return FrontierDocument(swept=sweep.swept, curves=tuple(curves))


def expense_of(point: FrontierPoint, objective: ObjectiveKind) -> float | None:
    """What throughput is bought with: USD per hour, or watts where these are what is saved."""
    return point.power_watts if objective == "min_power" else point.cost_usd_per_hour


def _point(ran: Ran, at: float) -> FrontierPoint:
    status = status_of(ran)
    plan = None if status == "rejected" else plan_made(ran)
    figures = figures_of(plan, ("value", "throughput_rps", "cost_usd_per_hour", "power_watts"))
    return FrontierPoint(at=at, status=status, **figures, on_frontier=False, seconds=ran.seconds)


def _is_unbeaten(point: FrontierPoint, others: Iterable[FrontierPoint], objective: ObjectiveKind) -> bool:
    rate, expense = point.throughput_rps, expense_of(point, objective)
    if rate is None or expense is None:
        return False
    for other in others:
        other_rate, other_expense = other.throughput_rps, expense_of(other, objective)
        if other_rate is None or other_expense is None:
            continue
        is_faster = rate * (1 + TOLERANCE_FRACTION) < other_rate
        is_less = other_expense * (1 + TOLERANCE_FRACTION) < expense
        if (is_faster and other_expense <= expense) or (is_less and rate <= other_rate):
            return False
    return True


def _check_ascending(first: float, last: float) -> None:
    if first >= last:
        remedy = f"must be below the last value, {last:g}: give --from and --to in ascending order"
        raise DocumentError.of("--from", remedy, value=first)
