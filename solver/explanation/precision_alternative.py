"""What 8-bit weights would bring where 16-bit ones are asked for: a fleet that is found, not the best one proven.

Quality is the caller's to judge, so that one precision stays one; but the plan says what it costs. fp8 alone, since
engines quantise to it while they load. A list in the problem lets the search choose (ServedModel.more_precisions).

Flow: planner.py, once the plan is known -> the same problem at fp8, few candidates -> Plan.precision_alternative.
"""

from dataclasses import replace
from typing import Final

from sutler.solver.answer.describe import DescribedFleet
from sutler.solver.answer.engine_args import checkpoint_of
from sutler.solver.catalog.entries import Precision
from sutler.solver.errors import EngineError
from sutler.solver.explanation.alternatives import quick_fleet
from sutler.solver.plan import Plan, PrecisionAlternative
from sutler.solver.polytope.preparation import prepare, scaled_to_one
from sutler.solver.problem import Problem
from sutler.solver.progress import SecondsLeft

TO: Final[Precision] = "fp8"

_LEAST_FRACTION: Final = 0.01  # chosen: less is not worth a change of quality


def precision_alternative(problem: Problem, plan: Plan, seconds_left: SecondsLeft) -> PrecisionAlternative | None:
    """The better fleet at 8 bits; None where nothing is at 16 bits, or nothing better was found in time."""
    names = _at_16_bits(problem)
    best = plan.optimum_value if problem.objective.give_up_fraction else plan.value
    if not names or not best or seconds_left() <= 0:
        return None
    models = tuple(replace(m, precision=TO) if m.name in names else m for m in problem.models)
    try:
        found = _found(replace(problem, models=models), seconds_left)
    except EngineError:  # no reason to lose a plan that is verified
        return None
    if found is None:
        return None
    value = found.value(problem.objective)
    better = value / best - 1 if plan.objective == "max_throughput" else 1 - value / best
    if better < _LEAST_FRACTION:
        return None
    checkpoints = tuple((model.name, checkpoint_of(model)) for model in models if model.name in names)
    return PrecisionAlternative(TO, checkpoints, value, found.cost_usd_per_hour, better)


def _at_16_bits(problem: Problem) -> set[str]:
    """Models that could do with less and whose rates are estimated: nobody measured, or simulated, them at fp8."""
    if problem.measured_only or problem.derated:
        return set()
    measured = {row.model for row in problem.measured}
    return {
        model.name
        for model in problem.models
        if model.precisions in (("bf16",), ("fp16",))
        and model.spec is not None
        and TO in model.spec.precisions
        and model.name not in measured
    }


def _found(problem: Problem, seconds_left: SecondsLeft) -> DescribedFleet | None:
    """A good fleet; None where none was found in time."""
    polytope = prepare(problem)
    scaled = scaled_to_one(polytope) if polytope.servable().all() else None
    return None if scaled is None else quick_fleet(scaled, seconds_left)
