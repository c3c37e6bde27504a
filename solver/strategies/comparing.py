"""What a comparison of planning strategies is made of: the strategies, and what each of them did with one problem.

Flow: a problem -> strategies_of (registry.py) -> Strategy.plan of each -> Ran -> `sutler compare`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from sutler.solver.candidates.engines import ANY_LAYOUT
from sutler.solver.plan import Plan
from sutler.solver.problem import Disaggregation, Problem, Search
from sutler.solver.progress import SecondsLeft

Family = Literal["sutler", "homogeneous", "ablation", "aggregated", "disaggregated", "greedy", "hedged"]


_WAYS: Final[dict[Disaggregation, frozenset[str]]] = {
    "off": frozenset({"together"}),
    "auto": frozenset({"together", "apart"}),
    "only": frozenset({"apart"}),
}


class NotApplicableError(Exception):
    """The strategy has no answer to this kind of problem; the message says why, and what it would need."""


@dataclass(frozen=True, slots=True)
class StrategyPlan:
    """A plan and the problem that it is verified against: the caller's, or one with the strategy's own market."""

    plan: Plan
    problem: Problem


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to plan. `plan` raises NotApplicableError where it has nothing to say to a problem.

    `source`: paper and section it is from. `own_market`: it is given a market that the caller does not have
    (unlimited supply), so that it may do better than any plan on the caller's.
    """

    name: str
    title: str
    family: Family
    source: str
    plan: Callable[[Problem, SecondsLeft], StrategyPlan]
    own_market: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What one strategy did. `planned` None: not applicable, as `reason` says.

    `violations`: of its plan against its problem, by verify; never anything but empty unless sutler is broken.
    `ratio`: sutler's value over its value, or the inverse where less is better: above 1, sutler is better; None where
    one of the two has no plan.
    `beyond`: settings that the caller would have to make for sutler to have all the plans that it may choose from;
    empty where the caller's problem allows them.
    """

    strategy: Strategy
    planned: StrategyPlan | None
    reason: str | None
    seconds: float
    violations: tuple[str, ...] = ()
    ratio: float | None = None
    beyond: tuple[str, ...] = ()


def settings_beyond(own: Search, callers: Search) -> tuple[str, ...]:
    """Settings of `callers` that forbid what `own` allows, with values that would allow it beside what it allows."""
    settings = []
    if not _WAYS[own.disaggregation] <= _WAYS[callers.disaggregation]:
        settings.append("search.disaggregation: auto")
    if not {*own.power_caps_fraction} <= {*callers.power_caps_fraction}:
        caps = sorted({*own.power_caps_fraction, *callers.power_caps_fraction})
        settings.append(f"search.power_caps_fraction: [{', '.join(f'{cap:g}' for cap in caps)}]")
    return tuple(settings)


def engines_beyond(own: Problem, callers: Problem) -> tuple[str, ...]:
    """The engine that a strategy plans for, where the caller's run fewer layouts."""
    pairs = zip(own.models, callers.models, strict=True)
    is_freer = any(mine.engine == ANY_LAYOUT != theirs.engine for mine, theirs in pairs)
    return (f"engine: {ANY_LAYOUT}",) if is_freer else ()


def reserve_beyond(own: Problem, callers: Problem) -> tuple[str, ...]:
    """What the caller wants to be survived and a strategy does not plan for."""
    survived = {*own.resilience.survive} >= {*callers.resilience.survive}
    return () if survived else ("resilience.survive: []",)
