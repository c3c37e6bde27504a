"""The problem with the traffic that is seen in the place of what was stated."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sutler.service.deployments.traffic.planned import shapes, stated_rps
from sutler.service.deployments.traffic.window import (
    RISE_FRACTION,
    ModelTraffic,
    WorkloadShape,
    WorkloadTraffic,
    work,
)
from sutler.service.documents.problem import LOADS, ProblemDocument
from sutler.service.documents.problem_parts import ModelDocument, WorkloadDocument

LEAST_SAMPLE: Final = 1e-6  # requests: above zero, since something is to come where nothing was seen
LEAST_SHARE: Final = 0.01  # chosen: of the stated rate, small enough to cost next to nothing and to stay servable
SIZED_BY: Final = 30
"""Requests after which their mean size is believed rather than the stated one.

Sizes are as spread as their mean at most, so that the mean of 30 is off by 1 / sqrt(30), a fifth: as much as counts
as drift by default.
"""


def has_rates(problem: ProblemDocument) -> bool:
    """Whether there are rates to be watched: a batch has none."""
    return problem.objective.kind != "min_makespan"


def carries_load(problem: ProblemDocument) -> bool:
    """Whether the rates are a load to carry; else, only their mix counts."""
    return problem.objective.kind in LOADS


def headroom_of(problem: ProblemDocument) -> float | None:
    """What is wanted beyond the load, as a fraction of it; None where only the mix counts."""
    return getattr(problem.objective, "headroom_fraction", None)


def has_same_workloads(one: ProblemDocument, other: ProblemDocument) -> bool:
    """Whether traffic that is sorted by the workloads of the one is sorted by those of the other."""
    return _shapes_by_model(one) == _shapes_by_model(other)


def _shapes_by_model(problem: ProblemDocument) -> dict[str, tuple[WorkloadShape, ...]]:
    return {model.name: shapes(model) for model in problem.models}


def seen(
    problem: ProblemDocument,
    traffic: Mapping[str, ModelTraffic],
    planned: ProblemDocument | None,
    *,
    climbing_to: Mapping[str, float] = MappingProxyType({}),
) -> ProblemDocument:
    """The problem whose models get the traffic that is known well; the others keep what the plan was made for.

    `planned` None: the others get what is stated, which is news. `climbing_to`: requests/s, by
    model, of those whose traffic is climbing.
    """
    if not has_rates(problem):
        return problem
    before = {} if planned is None else {model.name: model for model in planned.models}
    models = []
    for model in problem.models:
        known = traffic.get(model.name)
        if known is not None and known.state == "live" and known.requests > 0:
            factor = load_factor(known, before[model.name]) if carries_load(problem) and model.name in before else 1.0
            if carries_load(problem) and known.rate_rps > 0:
                factor = max(factor, climbing_to.get(model.name, 0.0) / known.rate_rps)
            models.append(_with_traffic(model, known, factor))
        else:
            models.append(_as_planned(model, before.get(model.name)))
    return problem.model_copy(update={"models": tuple(models)})


def part_of(problem: ProblemDocument, part: float) -> ProblemDocument:
    """The problem with such a part of its requests."""

    def reduced(workload: WorkloadDocument) -> WorkloadDocument:
        return workload.model_copy(update={"rate_rps": (workload.rate_rps or 0.0) * part})

    models = (m.model_copy(update={"workloads": tuple(map(reduced, m.workloads or ()))}) for m in problem.models)
    return problem.model_copy(update={"models": tuple(models)})


def lasting_rps(traffic: ModelTraffic, planned_rps: float) -> float:
    """The rate, but for a surge: it counts once it has lasted for half of the window, and then as in the newer half.

    One that only begins to fill the window would else be planned for again and again, and a storm of some seconds
    for as long as the window remembers it.
    """
    if traffic.newer_rps == traffic.older_rps or traffic.rate_rps <= planned_rps:
        return traffic.rate_rps
    least_rps = planned_rps * (1 + RISE_FRACTION)
    return traffic.newer_rps if min(traffic.older_rps, traffic.newer_rps) > least_rps else planned_rps


def load_factor(traffic: ModelTraffic, planned: ModelDocument) -> float:
    """Returns by what the traffic is to be multiplied to be what capacity is planned for.

    Growth counts as it lasts; less work than planned only once there has been less throughout `shrink_after_s`.
    """
    lasting = lasting_rps(traffic, stated_rps(planned))
    if lasting != traffic.rate_rps:
        return lasting / traffic.rate_rps
    now = sum(work(w.rate_rps, w.input_tokens, w.output_tokens) for w in traffic.workloads)
    return max(1.0, min(traffic.peak_work, stated_work(planned)) / now) if now > 0 else 1.0


STATED: Final = "those that are stated"


def at_least(traffic: ModelTraffic, stated: ModelDocument, *, times: float = 1.0, why: str = STATED) -> ModelTraffic:
    """The traffic as if no workload had fewer requests than so many times those of the problem; sizes are those that
    are seen."""
    if traffic.state != "live":
        return traffic
    least = {workload.name: times * (workload.rate_rps or 0.0) for workload in stated.workloads or ()}
    workloads = tuple(replace(w, rate_rps=max(w.rate_rps, least.get(w.workload, 0.0))) for w in traffic.workloads)
    rate_rps = sum(workload.rate_rps for workload in workloads)
    added_rps = rate_rps - sum(workload.rate_rps for workload in traffic.workloads)
    return replace(
        traffic,
        workloads=workloads,
        rate_rps=rate_rps,
        requests=max(traffic.requests, LEAST_SAMPLE),
        raised_by=why if added_rps > 0 else "",
        peak_work=max(traffic.peak_work, times * stated_work(stated)),
        older_rps=traffic.older_rps + added_rps,
        newer_rps=traffic.newer_rps + added_rps,
    )


def as_stated(traffic: ModelTraffic, stated: ModelDocument, *, times: float, why: str) -> ModelTraffic:
    """What is expected where nothing is heard: so many times the rates of the problem, as if they were known well."""
    workloads = tuple(
        WorkloadTraffic(w.name, rate * traffic.window_s, rate, w.input_tokens, w.output_tokens)
        for w in stated.workloads or ()
        for rate in [times * (w.rate_rps or 0.0)]
    )
    rate_rps = sum(workload.rate_rps for workload in workloads)
    return replace(
        traffic,
        state="live",
        heard=traffic.state,
        workloads=workloads,
        rate_rps=rate_rps,
        requests=rate_rps * traffic.window_s,
        raised_by=why,
        peak_work=times * stated_work(stated),
        older_rps=rate_rps,
        newer_rps=rate_rps,
        trend=None,
    )


def stated_work(model: ModelDocument) -> float:
    """The work of a model's traffic as the problem states it, in input tokens/s."""
    return sum(work(w.rate_rps or 0.0, w.input_tokens, w.output_tokens) for w in model.workloads or ())


def _with_traffic(model: ModelDocument, traffic: ModelTraffic, factor: float) -> ModelDocument:
    by_name = {workload.workload: workload for workload in traffic.workloads}
    workloads = tuple(_workload(stated, by_name.get(stated.name), factor) for stated in model.workloads or ())
    return model.model_copy(update={"workloads": workloads})


def _workload(stated: WorkloadDocument, found: WorkloadTraffic | None, factor: float) -> WorkloadDocument:
    least_rps = LEAST_SHARE * (stated.rate_rps or 0.0)
    if found is None:
        return stated
    if found.rate_rps * factor <= least_rps:
        return stated.model_copy(update={"rate_rps": least_rps})
    changed: dict[str, float] = {"rate_rps": found.rate_rps * factor}
    if found.requests >= SIZED_BY:
        changed |= {"input_tokens": max(1.0, found.input_tokens), "output_tokens": max(1.0, found.output_tokens)}
    return stated.model_copy(update=changed)


def _as_planned(model: ModelDocument, before: ModelDocument | None) -> ModelDocument:
    """The model with the traffic of the current plan, if that has the same workloads, and its own limits."""
    stated, planned = model.workloads or (), () if before is None else before.workloads or ()
    if [workload.name for workload in planned] != [workload.name for workload in stated]:
        return model
    workloads = tuple(one.model_copy(update={"slo": own.slo}) for one, own in zip(planned, stated, strict=True))
    return model.model_copy(update={"workloads": workloads})
