"""What a comparison of planning strategies is made of: the strategies, and what each of them did with one problem.

Flow: a problem -> strategies_of (registry.py) -> Strategy.plan of each -> Ran -> `sutler compare`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from solver.plan import Plan
from solver.problem import Problem

SecondsLeft = Callable[[], float]
Family = Literal["sutler", "homogeneous", "ablation", "aggregated", "disaggregated", "greedy"]


class NotApplicableError(Exception):
    """The strategy has no answer to this kind of problem; the message says why, and what it would need."""


@dataclass(frozen=True, slots=True)
class Planned:
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
    plan: Callable[[Problem, SecondsLeft], Planned]
    own_market: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What one strategy did. `planned` None: not applicable, as `reason` says.

    `violations`: of its plan against its problem, by verify; never anything but empty unless sutler is broken.
    `ratio`: sutler's value over its value, or the inverse where less is better: above 1, sutler is better; None where
    one of the two has no plan.
    """

    strategy: Strategy
    planned: Planned | None
    reason: str | None
    seconds: float
    violations: tuple[str, ...] = ()
    ratio: float | None = None
