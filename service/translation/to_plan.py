"""What a plan serves and runs on, there and back: so that a plan can be looked at again without its problem.

Flow: from_plan.py writes a problem's models and GPUs into the plan; simulations and replanning read the plan (both
here).
"""

from collections.abc import Iterable
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.model import GpuDocument, ModelSpecDocument
from sutler.service.documents.plan import PlanDocument, PlannedModel, PlannedWorkload
from sutler.service.documents.problem_parts import SloDocument
from sutler.service.translation.calibrations import calibration_of
from sutler.service.translation.given_models import inline_spec
from sutler.service.translation.mapping import mapped
from sutler.service.translation.to_problem import latency_limits
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog.entries import Gpu, ModelSpec
from sutler.solver.plan import Plan, Replica, Route, Share, SolveReport
from sutler.solver.problem import Estimates, LatencyLimit, Problem, ServedModel, Workload
from sutler.solver.throughput.roofline import Roofline

# What explains a plan does not tell what runs where.
_LEFT_OUT: Final[dict[str, Any]] = {
    **dict.fromkeys(("binding", "alternatives", "conflicts", "evidence", "warnings", "losses"), ()),
    **dict.fromkeys(("robustness", "precision_alternative")),
}


def planned_models(problem: Problem) -> tuple[PlannedModel, ...]:
    """The models of a problem, for its plan."""
    is_batch = problem.objective.kind == "min_makespan"
    return tuple(_planned_model(model, is_batch=is_batch) for model in problem.models)


def planned_gpus(problem: Problem, replicas: Iterable[Replica]) -> dict[str, GpuDocument]:
    """The figures of the GPUs that replicas run on, by slug."""
    slugs = sorted({stage.gpu for replica in replicas for stage in replica.stages})
    return {slug: mapped(GpuDocument, problem.gpus[slug]) for slug in slugs}


def served_models(plan: PlanDocument) -> dict[str, ServedModel]:
    """Returns the models of a plan by the caller's names.

    Raises DocumentError where the plan does not say what it serves.
    """
    if not plan.models:
        remedy = "the plan says nothing of its models: it is of an older version; plan the problem again"
        raise DocumentError.of("models", remedy, value=())
    return {model.name: _served_model(model) for model in plan.models}


def gpus_of(plan: PlanDocument) -> dict[str, Gpu]:
    """Returns the GPUs that a plan runs on, by slug."""
    return {slug: mapped(Gpu, gpu, slug=slug) for slug, gpu in plan.gpus.items()}


def roofline_of(plan: PlanDocument) -> Roofline:
    """Returns the estimator that a plan's rates came from."""
    own = None if plan.calibration is None else calibration_of(plan.calibration)
    has_operators = any("aiconfigurator" in evidence.source for evidence in plan.evidence)
    estimates: Estimates = "narrowest_band" if has_operators else "roofline"
    return Roofline(own or shipped_calibration(), None if own is None else own.serves, estimates)


def solver_plan(document: PlanDocument) -> Plan:
    """The parts of a stored plan that tell what runs where."""
    first = {model.name: model.precision for model in document.models}
    routing = (
        mapped(Route, route, shares=tuple(Share(*share) for share in route.fractions.items()))
        for route in document.routing
    )
    return mapped(
        Plan,
        document,
        **document.objective.model_dump(exclude={"kind"}),
        objective=document.objective.kind,
        replicas=tuple(
            mapped(Replica, replica, precision=replica.precision or first.get(replica.model))
            for replica in document.replicas
        ),
        routing=tuple(routing),
        solver=SolveReport(document.solver.method, 0.0, 0, (), document.solver.version),
        **_LEFT_OUT,
    )


def _planned_model(model: ServedModel, *, is_batch: bool) -> PlannedModel:
    demand = "requests" if is_batch else "rate_rps"
    return mapped(
        PlannedModel,
        model,
        architecture=None if model.spec is None else architecture_of(model.spec),
        model=None if model.spec is None else model.spec.id,
        workloads=tuple(
            mapped(PlannedWorkload, w, slo=None if w.slo is None else _slo(w.slo), **{demand: w.demand})
            for w in model.workloads
        ),
        slo=_slo(model.slo),
    )


def _slo(limits: Iterable[LatencyLimit]) -> SloDocument:
    return SloDocument(**{f"{limit.metric}_p{limit.percentile}_s": limit.seconds for limit in limits})


def architecture_of(spec: ModelSpec) -> ModelSpecDocument:
    """A model as a caller would describe it."""
    return mapped(ModelSpecDocument, spec)


def _served_model(model: PlannedModel) -> ServedModel:
    return mapped(
        ServedModel,
        model,
        spec=None if model.architecture is None else inline_spec(model.model or model.name, model.architecture),
        workloads=tuple(
            mapped(
                Workload,
                w,
                demand=w.rate_rps or w.requests or 0.0,
                slo=None if w.slo is None else latency_limits(w.slo),
            )
            for w in model.workloads
        ),
        slo=latency_limits(model.slo),
    )
