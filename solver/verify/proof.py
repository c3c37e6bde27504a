"""The claim of optimality: bound, gap and status, and what an answered plan may not say."""

from collections.abc import Iterator

from sutler.solver.verify.numbers import RATE_TOLERANCE, SUM_TOLERANCE, same
from sutler.solver.verify.view import PlanView


def wrong_proof(view: PlanView) -> Iterator[str]:
    """A bound on the wrong side, a gap that is not theirs, a status that the gap does not carry.

    What runs already may be valued without a proof.
    """
    plan = view.plan
    if plan.conflicts:
        yield f"conflicts: {len(plan.conflicts)} entries, expected none in a plan that is {plan.status}"
    if view.is_standing and (plan.value, plan.bound, plan.relative_gap) == (plan.value, None, None):
        return
    if plan.value is None or plan.bound is None or plan.relative_gap is None:
        yield f"value, bound, relative_gap: {plan.value!r}, {plan.bound!r}, {plan.relative_gap!r}, expected numbers"
        return
    if plan.value == 0 and plan.objective in ("max_throughput", "min_makespan"):
        yield f"value: {plan.value!r}, expected a positive number"
        return
    yield from _wrong_side(view, plan.value, plan.bound)
    gap = _relative_gap(plan.value, plan.bound)
    if not same(plan.relative_gap, gap):
        yield f"relative_gap: {plan.relative_gap!r}, expected {gap!r} (|bound - value| / |value|)"
    yield from _wrong_optimum(view, plan.value, plan.bound)
    if view.problem.objective.give_up_fraction and plan.optimum_value is not None:
        gap = _relative_gap(plan.optimum_value, plan.bound)
    yield from _wrong_status(view, gap)


def _wrong_optimum(view: PlanView, value: float, bound: float) -> Iterator[str]:
    """An optimum that nobody asked for, that the plan gives up too much of, or that the plan or the bound refutes."""
    plan, objective, optimum = view.plan, view.problem.objective, view.plan.optimum_value
    if optimum is None:
        if objective.give_up_fraction and not view.is_standing:
            yield "optimum_value: None, expected the value of which a fraction is given up"
        return
    if not (objective.give_up_fraction or objective.robust):
        yield f"optimum_value: {optimum!r}, expected None where nothing of the optimum is given up"
        return
    maximised = plan.objective == "max_throughput"
    if (value - optimum if maximised else optimum - value) > SUM_TOLERANCE * abs(value):
        yield f"optimum_value: {optimum!r}, expected no worse than the value {value!r}"
    if objective.robust:
        return  # it is of other rates than value and bound
    worst = optimum * (1 - objective.give_up_fraction if maximised else 1 + objective.give_up_fraction)
    if (worst - value if maximised else value - worst) > RATE_TOLERANCE * abs(worst):
        yield f"value: {value!r}, expected no worse than {worst!r}, {objective.give_up_fraction!r} off {optimum!r}"
    if (optimum - bound if maximised else bound - optimum) > SUM_TOLERANCE * abs(optimum):
        yield f"bound: {bound!r}, expected at {'least' if maximised else 'most'} the optimum {optimum!r}"


def _relative_gap(value: float, bound: float) -> float:
    """|bound - value| / |value|; 0 where both are 0 (a free fleet)."""
    return 0.0 if value == bound else abs(bound - value) / abs(value) if value else float("inf")


def _wrong_side(view: PlanView, value: float, bound: float) -> Iterator[str]:
    maximised = view.plan.objective == "max_throughput"
    beyond = value - bound if maximised else bound - value
    if beyond > SUM_TOLERANCE * abs(value):
        yield f"bound: {bound!r}, expected at {'least' if maximised else 'most'} the value {value!r}"


def _wrong_status(view: PlanView, gap: float) -> Iterator[str]:
    options = view.problem.options
    asked = options.relative_gap if options.method == "exact" else options.tolerance_fraction
    expected = "optimal" if gap <= asked + SUM_TOLERANCE else "feasible"
    if view.plan.status != expected:
        yield f"status: {view.plan.status!r}, expected {expected!r} for a gap of {gap!r} where {asked!r} is asked"
