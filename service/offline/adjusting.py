"""Plans the rest of an application anew from what its models have done: the document side of SamuLLM's §4.3.

Flow: plan document, progress document -> adjusted (here) -> solver/offline/adjusting -> plan document, revision + 1.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from uuid import UUID

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.rules import either
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.offline.plan_issue import CUT_SHORT, Renting, cut_short, issue_offline_plan
from sutler.service.offline.plan_schema import (
    ApplicationModel,
    OfflineAdjustment,
    OfflinePlanDocument,
    OfflineRental,
    SeenSpeed,
)
from sutler.service.offline.planned import model_numbers, planned_hardware, planned_schedule
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.reported_progress import finished_at_start, planned_start, running, started
from sutler.service.offline.simulating import planned_translation
from sutler.service.offline.translate import to_rental_terms
from sutler.solver.offline.adjusting import ReportedProgress, adjust
from sutler.solver.offline.machine_sets import last_use_s
from sutler.solver.offline.plan import LowerBound
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import Execution
from sutler.solver.units import SECONDS_PER_HOUR


def adjusted(
    plan: OfflinePlanDocument, progress: ProgressDocument, *, plan_id: UUID, created_at: datetime
) -> OfflinePlanDocument:
    """The plan of what is left, one revision on; what adjusting saves is in its `adjustment`.

    Raises DocumentError and InvalidProblemError for a report that does not go with the plan.
    """
    check_progress(plan, progress)
    translation, hardware = planned_translation(plan), planned_hardware(plan)
    found = adjust(
        translation.application,
        hardware,
        planned_schedule(plan),
        _reported(plan, progress),
        translation.options,
        start=planned_start(plan, sample(translation.application, seed=plan.seed)),
    )
    start_up_s = plan.application.rental.start_up_s
    rentals = tuple(
        again for rental in plan.rentals for again in rebilled(rental, plan, found.plan.execution, progress.at_s)
    )
    issued = issue_offline_plan(
        found.plan,
        translation,
        hardware,
        plan_id=plan_id,
        created_at=created_at,
        revision=plan.revision + 1,
        renting=Renting(rentals, bound=_bound(plan, found.plan.bound), start_up_s=start_up_s) if rentals else None,
        warnings=(*cut_short(found.plan), *(warning for warning in plan.warnings if warning != CUT_SHORT)),
    )
    adjustment = OfflineAdjustment(
        of=plan.id,
        at_s=progress.at_s,
        progress=progress,
        speeds=tuple(_speeds(plan, found.slowdowns)),
        unadjusted_makespan_s=found.unadjusted_s,
        start=started(found.start, found.plan.pile, translation.application),
    )
    models = tuple(
        _model(before, model, progress.at_s) for before, model in zip(plan.models, issued.models, strict=True)
    )
    return issued.model_copy(update={"adjustment": adjustment, "models": models})


def check_progress(plan: OfflinePlanDocument, progress: ProgressDocument) -> None:
    """Raises DocumentError for models, requests and GPUs that the plan does not have."""
    problems = [*_problems(plan, progress)]
    if problems:
        raise DocumentError(problems)


def _reported(plan: OfflinePlanDocument, progress: ProgressDocument) -> ReportedProgress:
    numbers = model_numbers(plan)
    replicas = None
    if progress.replicas is not None:
        replicas = tuple(running(numbers[replica.model], replica) for replica in progress.replicas)
    finished = {numbers[model.model]: model.finished_requests for model in progress.models}
    return ReportedProgress(progress.at_s, finished, replicas)


def _problems(plan: OfflinePlanDocument, progress: ProgressDocument) -> Iterator[FieldProblem]:
    requests = {model.name: model.requests for model in plan.models}
    already = finished_at_start(plan)
    if plan.adjustment is not None and progress.at_s <= plan.adjustment.at_s:
        remedy = f"the plan begins at {plan.adjustment.at_s:g}: report what is known after that"
        yield FieldProblem("at_s", f"{progress.at_s:g}", remedy)
    for i, model in enumerate(progress.models):
        if model.model not in requests:
            remedy = f"is no model of this plan: use {either(requests)}"
            yield FieldProblem(f"models[{i}].model", short_repr(model.model), remedy)
        elif model.finished_requests > requests[model.model]:
            remedy = f"is more than the {requests[model.model]} requests that {model.model} has"
            yield FieldProblem(f"models[{i}].finished_requests", str(model.finished_requests), remedy)
        elif model.finished_requests < already.get(model.model, 0):
            remedy = f"is less than the {already[model.model]} that {model.model} had finished where the plan begins"
            yield FieldProblem(f"models[{i}].finished_requests", str(model.finished_requests), remedy)
    islands = () if plan.hardware is None else plan.hardware.islands
    gpus = {(island.host, gpu) for island in islands for gpu in island.gpus}
    for i, replica in enumerate(progress.replicas or ()):
        if replica.model not in requests:
            remedy = f"is no model of this plan: use {either(requests)}"
            yield FieldProblem(f"replicas[{i}].model", short_repr(replica.model), remedy)
        for place in replica.gpus:
            if (place.host, place.gpu) not in gpus:
                shown = f"host {place.host}, GPU {place.gpu}"
                yield FieldProblem(f"replicas[{i}].gpus", shown, "is none of the plan's GPUs: see its hardware")


def _speeds(plan: OfflinePlanDocument, slowdowns: Mapping[int, float]) -> Iterator[SeenSpeed]:
    """Yields speeds beside the first plan: what was seen before, and now on top of that."""
    before = {} if plan.adjustment is None else {seen.model: seen.slowdown for seen in plan.adjustment.speeds}
    for node, model in enumerate(plan.models):
        if model.name in before or node in slowdowns:
            slowdown = before.get(model.name, 1.0) * slowdowns.get(node, 1.0)
            yield SeenSpeed(model=model.name, slowdown=slowdown)


def _bound(plan: OfflinePlanDocument, bound: LowerBound) -> float | None:
    """Returns what no plan beats on the rented machines, from their order; of USD nothing is proven once they run."""
    if plan.objective.kind == "min_cost":
        return None
    return plan.application.rental.start_up_s + bound.seconds


def _model(before: ApplicationModel, now: ApplicationModel, at_s: float) -> ApplicationModel:
    """What was done before the report was done when the last plan has it, or by the report."""
    if now.finish_s is None or before.finish_s is None or now.finish_s > at_s:
        return now
    return now.model_copy(update={"finish_s": min(before.finish_s, at_s)})


def rebilled(
    rental: OfflineRental, plan: OfflinePlanDocument, execution: Execution, at_s: float
) -> Iterator[OfflineRental]:
    """Bills each machine until the last stage that uses it; one that nothing uses any more, until now at most."""
    terms = to_rental_terms(plan.application)
    groups: dict[float, list[int]] = {}
    for host in rental.hosts:
        used_s = last_use_s(execution, host)
        billed_s = terms.billed_s(used_s) if used_s else min(rental.billed_s, terms.billed_s(at_s))
        groups.setdefault(billed_s, []).append(host)
    for billed_s, hosts in groups.items():
        usd = len(hosts) * rental.price_usd_per_hour * billed_s / SECONDS_PER_HOUR
        changed = {"count": len(hosts), "hosts": tuple(hosts), "billed_s": billed_s, "usd": usd}
        yield rental.model_copy(update=changed)
