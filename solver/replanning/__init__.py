"""Replanning: what the fleet that runs is worth under new facts, and which changes of it are worth their cost.

holding.py       from a plan and what is held to what stands of it
standing.py      the running fleet as an allocation of the polytope: what it carries, under any routing
switching.py     what a change costs: machines that start and stop, engines that start anew
steady.py        the best fleet when every change is charged, and the best step to it
steps.py         how much one plan may change at once
lasting.py       what changes save at most on later markets
considering.py   the front door: the options, least disruptive first
"""

from sutler.solver.replanning.considering import (
    Consideration,
    Considered,
    Kept,
    OptionKind,
    ReplanOption,
    consider,
    kept_again,
)
from sutler.solver.replanning.holding import Holding, HoldingKey, held_offer, holding_key, holdings_of, standing_of
from sutler.solver.replanning.proof import proven_by
from sutler.solver.replanning.standing import StandingDeployment
from sutler.solver.replanning.steps import StepLimits
from sutler.solver.replanning.switching import FleetChange, Switching

__all__ = [
    "Consideration",
    "Considered",
    "FleetChange",
    "Holding",
    "HoldingKey",
    "Kept",
    "OptionKind",
    "ReplanOption",
    "StandingDeployment",
    "StepLimits",
    "Switching",
    "consider",
    "held_offer",
    "holding_key",
    "holdings_of",
    "kept_again",
    "proven_by",
    "standing_of",
]
