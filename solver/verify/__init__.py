"""Recomputes a plan from its problem, without the solver: the last step before a plan is shown.

Nothing here knows how the plan was found. Prices, storage, machines, placement, rates, routing, totals, limits and
proof are each recomputed from the offers and the throughput layer; what differs is a violation. Pools (what is
interchangeable) and the throughput layer are shared with the solver because they define what a plan means.

    wellformed -> rented offers -> replicas and pieces -> supply, placement, service, totals, limits
"""

from dataclasses import fields

from sutler.solver.plan import Plan
from sutler.solver.problem import Problem
from sutler.solver.verify.handover import wrong_handover
from sutler.solver.verify.limits import broken_limits
from sutler.solver.verify.losses import wrong_losses
from sutler.solver.verify.low_end import wrong_low_end
from sutler.solver.verify.placement import misplaced_pieces
from sutler.solver.verify.proof import wrong_proof
from sutler.solver.verify.rentals import oversupplied_machines, unknown_rentals, wrong_rentals
from sutler.solver.verify.replicas import broken_replicas, overfull_disks, unfit_pieces
from sutler.solver.verify.service import sustained_rates, wrong_service
from sutler.solver.verify.totals import wrong_totals
from sutler.solver.verify.view import PlanView, view_of
from sutler.solver.verify.wellformed import malformed

__all__ = ["verify"]

_OF_MACHINES = (wrong_rentals, oversupplied_machines, unfit_pieces, overfull_disks, misplaced_pieces)
_OF_RATES = (wrong_service, wrong_low_end, wrong_losses)
_OF_THE_WHOLE = (wrong_handover, wrong_totals, broken_limits, wrong_proof)


def verify(problem: Problem, plan: Plan, *, is_standing: bool = False) -> tuple[str, ...]:
    """Sentences that say what is wrong with the plan, each with field, value and expectation; empty: valid.

    `is_standing`: the fleet runs already; its parts may idle, and stand wherever there is room.

    Later checks need what earlier ones establish (a stage that points nowhere has no pool), so a malformed plan
    is reported without them.
    """
    found = malformed(plan) or _wrong_identity(problem, plan)
    if found:
        return tuple(found)
    if plan.status in ("infeasible", "unknown"):
        return tuple(_wrong_refusal(plan))
    found = [*unknown_rentals(problem, plan), *broken_replicas(problem, plan, is_standing=is_standing)]
    if found:
        return tuple(found)
    view: PlanView = view_of(problem, plan, is_standing=is_standing)
    sustained = sustained_rates(view)
    found = [sentence for check in _OF_MACHINES for sentence in check(view)]
    found += [sentence for check in _OF_RATES for sentence in check(view, sustained)]
    return (*found, *(sentence for check in _OF_THE_WHOLE for sentence in check(view)))


def _wrong_identity(problem: Problem, plan: Plan) -> list[str]:
    found = []
    if plan.objective != problem.objective.kind:
        found.append(f"objective: {plan.objective!r}, but the problem asks for {problem.objective.kind!r}")
    if plan.solver.method != problem.options.method:
        found.append(f"solver.method: {plan.solver.method!r}, but the problem asks for {problem.options.method!r}")
    return found


# A bound may be known without a plan.
_ANSWERS = tuple(each.name for each in fields(Plan) if each.default is None and each.name != "bound")


def _wrong_refusal(plan: Plan) -> list[str]:
    """An infeasible or unknown plan answers nothing, and an infeasible one says what has to give."""
    found = [
        f"{name}: {getattr(plan, name)!r}, expected None in a plan that is {plan.status}"
        for name in _ANSWERS
        if getattr(plan, name) is not None
    ]
    found += [
        f"{name}: {len(getattr(plan, name))} entries, expected none in a plan that is {plan.status}"
        for name in ("rentals", "replicas", "routing", "evidence", "kv_transfers", "combos")
        if getattr(plan, name)
    ]
    if plan.status == "infeasible" and not plan.conflicts:
        found.append("conflicts: none, but an infeasible plan has to say what must give")
    return found
