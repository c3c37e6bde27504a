"""What a solver process is asked about studies; who answers is in answering.py, which loads the planner."""

from dataclasses import dataclass, field
from typing import Final

from sutler.service.comparing.sweeping import Range
from sutler.service.documents.changes import Changes
from sutler.service.documents.plan import PlanDocument
from sutler.service.simulation.simulated import Choices
from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic
from sutler.service.translation.to_problem import Translation

UNEXPLAINED: Final[Changes] = {"solver.alternatives": False}
"""What explains a single plan is left out of plans side by side."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A problem with some things changed, ready to solve, or why there is nothing to plan with."""

    changes: Changes
    translation: Translation | str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The problem as it is, and its variants."""

    every: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A problem for every strategy that is named; `names` None: all of them."""

    translation: Translation
    names: tuple[str, ...] | None = None
    sweep: Range | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """A plan and what is sent through it."""

    plan: PlanDocument
    traffic: PoissonTraffic | TraceTraffic
    choices: Choices = field(default_factory=Choices)


Study = WhatIf | Comparison | Simulation
