"""The traffic that is expected: the sizes that requests are sorted by, and how many of each there should be."""

from sutler.service.deployments.traffic.window import WorkloadShape
from sutler.service.documents.problem_parts import ModelDocument


def shapes(model: ModelDocument) -> tuple[WorkloadShape, ...]:
    """The shapes of its workloads, in their order."""
    return tuple(WorkloadShape(w.name, w.input_tokens, w.output_tokens) for w in model.workloads or ())


def stated_rps(model: ModelDocument) -> float:
    """Requests per second of all its workloads."""
    return sum(workload.rate_rps or 0.0 for workload in model.workloads or ())


def with_planned_rates(stated: ModelDocument, planned: ModelDocument | None) -> ModelDocument:
    """The rates that a plan was made for, at the sizes that are stated; as stated where the workloads are others."""
    rates = {} if planned is None else {w.name: w.rate_rps for w in planned.workloads or ()}
    workloads = stated.workloads or ()
    if rates.keys() != {workload.name for workload in workloads}:
        return stated
    changed = tuple(workload.model_copy(update={"rate_rps": rates[workload.name]}) for workload in workloads)
    return stated.model_copy(update={"workloads": changed})
