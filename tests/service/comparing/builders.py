"""What strategies did with a problem, made up: a plan of a given value for each, nothing solved."""

from dataclasses import replace
from typing import Any

from sutler.service.comparing.compared import comparison_of
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.plan import Plan
from sutler.solver.problem import Objective, ObjectiveKind, Problem
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies.comparing import Family, NotApplicableError, Ran, Strategy, StrategyPlan
from tests.service.builders import NOW, a_plan, a_problem


def a_strategy(name: str, family: Family = "homogeneous", *, own_market: bool = False) -> Strategy:
    def plan(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
        raise NotApplicableError("it is made up")

    return Strategy(name, f"what {name} does", family, "A paper, section 1", plan, own_market)


def sutler() -> Strategy:
    return a_strategy("sutler", "sutler")


def a_translation(**others: Any) -> Translation:
    return to_problem(validate(ProblemDocument, a_problem(**others)), folder=None, now=NOW)


def ran(strategy: Strategy, value: float | None, **others: Any) -> Ran:
    """Its plan has that value; None: it found none in time. Ratios are of rates, to a sutler of 4."""
    plan = _plan_of(value, **others)
    ratio = 4.0 / value if value else None
    return Ran(strategy, StrategyPlan(plan, a_translation().problem), None, 0.25, (), ratio)


def not_applicable(strategy: Strategy, reason: str = "it needs a budget: set budget_usd_per_hour") -> Ran:
    return Ran(strategy, None, reason, 0.0)


def a_comparison(*results: Ran, objective: ObjectiveKind = "max_throughput") -> ComparisonDocument:
    """Beside a sutler of 4 where none is given."""
    given = a_translation()
    translation = replace(given, problem=replace(given.problem, objective=Objective(objective)))
    first = () if results and results[0].strategy.family == "sutler" else (ran(sutler(), 4.0, objective=objective),)
    return comparison_of((*first, *results), translation, created_at=NOW)


def _plan_of(value: float | None, **others: Any) -> Plan:
    if value is None:
        nothing = dict.fromkeys(("bound", "relative_gap", "throughput_rps", "cost_usd_per_hour", "power_watts"), None)
        return a_plan(**{"status": "unknown", "value": None, "rentals": (), "replicas": (), **nothing, **others})
    return a_plan(**{"value": value, "bound": value, "relative_gap": 0.0, "throughput_rps": value, **others})
