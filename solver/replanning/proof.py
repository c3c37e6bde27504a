"""How good a plan is that stays near what runs: by the bound of the same problem, solved without regard to that."""

from dataclasses import replace

from sutler.solver.plan import Plan
from sutler.solver.problem import Problem


def bounded(plan: Plan, bound: float | None, problem: Problem) -> Plan:
    """The plan with what is proven of every plan, in the objective's unit; None: nothing is."""
    if plan.value is None or bound is None:
        return replace(plan, status="feasible", bound=None, relative_gap=None)
    limit = max if plan.objective == "max_throughput" else min
    bound = limit(bound, plan.value)
    gap = abs(bound - plan.value) / abs(plan.value) if plan.value else 0.0
    options = problem.options
    allowed = options.relative_gap if options.method == "exact" else options.tolerance_fraction
    return replace(plan, bound=bound, relative_gap=gap, status="optimal" if gap <= allowed + 1e-9 else "feasible")


def proven_by(plan: Plan, optimum: Plan, problem: Problem) -> Plan:
    """The plan with the bound, the shadow prices and the alternatives of the problem's own solution."""
    if plan.value is None or optimum.bound is None:
        return plan
    return replace(
        bounded(plan, optimum.bound, problem),
        binding=optimum.binding,
        alternatives=optimum.alternatives,
        solver=replace(optimum.solver, seconds=plan.solver.seconds + optimum.solver.seconds),
    )
