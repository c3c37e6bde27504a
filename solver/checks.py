"""What a problem must satisfy beyond its types; the service says the same earlier, with the caller's field names."""

import math

from sutler.solver.errors import InvalidProblemError
from sutler.solver.problem import Problem


def check(problem: Problem) -> None:
    """Raise InvalidProblemError where no plan can be made sense of."""
    for name, entries in (("models", problem.models), ("offers", problem.offers)):
        if not entries:
            raise InvalidProblemError(name, entries, "needs at least one entry")
    for m, model in enumerate(problem.models):
        _check_precisions(problem, m)
        for w, workload in enumerate(model.workloads):
            if not (math.isfinite(workload.demand) and workload.demand > 0):
                field = f"models[{m}].workloads[{w}].demand"
                raise InvalidProblemError(field, workload.demand, "must be positive; leave out what is not asked for")
    objective = problem.objective
    if not 0 <= objective.give_up_fraction < 1 or (objective.give_up_fraction and objective.robust):
        remedy = "must be from 0 to less than 1, and 0 where objective.robust is true"
        raise InvalidProblemError("objective.give_up_fraction", objective.give_up_fraction, remedy)
    if problem.objective.kind == "min_power" or problem.limits.max_power_watts is not None:
        _check_power_is_known(problem)
    if problem.options.method == "binary_search" and problem.objective.kind in ("min_cost", "min_power"):
        remedy = "binary_search knows max_throughput and min_makespan only: use exact"
        raise InvalidProblemError("solver.method", problem.options.method, remedy)


def _check_precisions(problem: Problem, m: int) -> None:
    """Several are for estimates to choose from, and what is handed over is read as it was written."""
    model = problem.models[m]
    if len(model.precisions) == 1:
        return
    if model.spec is None or problem.measured_only:
        remedy = "is for estimated rates to choose from: keep one, or give an architecture and use estimates"
        raise InvalidProblemError(f"models[{m}].precision", model.precisions, remedy)
    caches = {one.kv_precision for one in model.at_each_precision}
    if problem.search.disaggregation != "off" and len(caches) > 1:
        remedy = f"comes with KV caches of {', '.join(sorted(caches))}, which no replica hands over: set kv_precision"
        raise InvalidProblemError(f"models[{m}].precision", model.precisions, remedy)


def _check_power_is_known(problem: Problem) -> None:
    for slug in sorted({offer.gpu for offer in problem.offers}):
        if problem.gpus[slug].tdp_watts is None:
            remedy = "power can only be planned with the watts of every GPU for rent: state tdp_watts"
            raise InvalidProblemError(f"gpus.{slug}.tdp_watts", None, remedy)
