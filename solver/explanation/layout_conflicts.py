"""Whether a workload is unserved because of what the engine cannot run, or of the context that servers are to accept.

Flow: unserved_conflicts.py, before memory is blamed -> here.
"""

from collections.abc import Callable
from dataclasses import replace

from sutler.solver.candidates.engines import ANY_LAYOUT, mixes_gpus
from sutler.solver.plan import Conflict
from sutler.solver.polytope.rows import Demand
from sutler.solver.problem import Problem, ServedModel

CanServe = Callable[[Problem, Demand], bool]
_HALVINGS = 8  # an enumeration each; they find the context to within a 256th


def why_not_laid_out(problem: Problem, demand: Demand, can_serve: CanServe) -> Conflict | None:
    """Says which of the two it is; None: neither. `problem` has nothing that a caller limits but the layouts."""
    model = problem.models[demand.model]
    if model.spec is None or problem.measured_only:
        return None
    freer = replace(model, max_context_tokens=None)
    if model.max_context_tokens is not None and can_serve(problem.with_model(demand.model, freer), demand):
        return _context_conflict(problem, demand, model, model.max_context_tokens, can_serve)
    mixing = replace(problem, search=replace(problem.search, mixed_gpu_pipelines=True))
    if not mixes_gpus(problem, model) and can_serve(mixing, demand):
        remedy = (
            f"only pipelines of several GPU types can serve {demand.name} here: set search.mixed_gpu_pipelines to "
            "true, or offer more GPUs of one type on one site"
        )
        return Conflict(demand.name, 1.0, 0.0, "pipelines of one GPU type", remedy)
    anything = mixing.with_model(demand.model, replace(model, engine=ANY_LAYOUT))
    if model.engine != ANY_LAYOUT and can_serve(anything, demand):
        remedy = (
            f"{model.engine} cannot run any layout that serves {demand.name} here: offer more GPUs of one type in a "
            f"machine or on a site, or set engine to {ANY_LAYOUT} for an engine that runs stages of any size"
        )
        return Conflict(demand.name, 1.0, 0.0, f"layouts that {model.engine} runs", remedy)
    return None


def _context_conflict(
    problem: Problem, demand: Demand, model: ServedModel, wanted: int, can_serve: CanServe
) -> Conflict:
    """Says with about how much context there would be a replica, found by halving."""
    workloads = model.workloads
    low, high = int(max(w.input_tokens + w.output_tokens for w in workloads)), wanted
    for _ in range(_HALVINGS):
        middle = (low + high) // 2
        fits = can_serve(problem.with_model(demand.model, replace(model, max_context_tokens=middle)), demand)
        low, high = (middle, high) if fits else (low, middle)
    remedy = (
        f"no replica of {model.name} here holds one request of max_context_tokens in its KV cache, without which "
        "servers do not start: lower it, or offer more GPU memory"
    )
    return Conflict(demand.name, float(wanted), float(low), "tokens of context", remedy)
