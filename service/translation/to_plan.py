"""What a plan serves and runs on, there and back: so that a plan can be looked at again without its problem.

Flow: from_plan.py writes a problem's models and GPUs into the plan; simulations and replanning read the plan (both
here).
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.model import GpuDocument, ModelSpecDocument
from sutler.service.documents.plan import ComboDocument, PlanDocument, PlannedModel, PlannedPrecision, PlannedWorkload
from sutler.service.documents.problem_parts import SloDocument
from sutler.service.translation.calibrations import calibration_of
from sutler.service.translation.given_models import inline_spec
from sutler.service.translation.to_problem import latency_limits
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog.entries import Gpu, ModelSpec
from sutler.solver.plan import (
    Combo,
    KvTransfer,
    Plan,
    Rental,
    Replica,
    Route,
    Share,
    SolveReport,
    Stage,
    WorkloadRate,
)
from sutler.solver.problem import LatencyLimit, Problem, ServedModel, Workload
from sutler.solver.throughput.roofline import Roofline


def planned_models(problem: Problem) -> tuple[PlannedModel, ...]:
    """The models of a problem, for its plan."""
    is_batch = problem.objective.kind == "min_makespan"
    return tuple(_planned_model(model, is_batch=is_batch) for model in problem.models)


def planned_gpus(problem: Problem, replicas: Iterable[Replica]) -> dict[str, GpuDocument]:
    """The figures of the GPUs that replicas run on, by slug."""
    slugs = sorted({stage.gpu for replica in replicas for stage in replica.stages})
    return {slug: GpuDocument(**gpu_figures(problem.gpus[slug])) for slug in slugs}


def served_models(plan: PlanDocument) -> dict[str, ServedModel]:
    """By the caller's names. Raises DocumentError where the plan does not say what it serves."""
    if not plan.models:
        remedy = "the plan says nothing of its models: it is of an older version; plan the problem again"
        raise DocumentError.of("models", remedy, value=())
    return {model.name: _served_model(model) for model in plan.models}


def gpus_of(plan: PlanDocument) -> dict[str, Gpu]:
    """By slug."""
    return {slug: Gpu(slug, **gpu.model_dump()) for slug, gpu in plan.gpus.items()}


def roofline_of(plan: PlanDocument) -> Roofline:
    """What its estimates rest on."""
    calibration = shipped_calibration() if plan.calibration is None else calibration_of(plan.calibration)
    has_operators = any("aiconfigurator" in evidence.source for evidence in plan.evidence)
    return Roofline(calibration, calibration.serves, "narrowest_band" if has_operators else "roofline")


def solver_plan(document: PlanDocument) -> Plan:
    """The parts of a stored plan that tell what runs where."""
    first = {model.name: model.precision for model in document.models}
    return Plan(
        status=document.status,
        objective=document.objective.kind,
        value=document.objective.value,
        bound=document.objective.bound,
        relative_gap=document.objective.relative_gap,
        throughput_rps=document.throughput_rps,
        makespan_s=document.makespan_s,
        load_multiple=document.load_multiple,
        cost_usd_per_hour=document.cost_usd_per_hour,
        power_watts=document.power_watts,
        usd_per_million_tokens=document.usd_per_million_tokens,
        rentals=tuple(Rental(**rental.model_dump()) for rental in document.rentals),
        replicas=tuple(
            Replica(
                id=replica.id,
                model=replica.model,
                role=replica.role,
                stages=tuple(Stage(**stage.model_dump()) for stage in replica.stages),
                max_batch=replica.max_batch,
                utilisation_fraction=replica.utilisation_fraction,
                throughput_rps=tuple(WorkloadRate(name, rps) for name, rps in replica.throughput_rps.items()),
                engine_args=tuple(replica.engine_args.items()),
                engine_env=tuple(replica.engine_env.items()),
                engine=replica.engine,
                max_load_fraction=replica.max_load_fraction,
                data_parallel=replica.data_parallel,
                expert_parallel=replica.expert_parallel,
                precision=replica.precision or first.get(replica.model),
                checkpoint=replica.checkpoint,
            )
            for replica in document.replicas
        ),
        routing=tuple(
            Route(route.model, route.workload, tuple(Share(r, f) for r, f in route.fractions.items()))
            for route in document.routing
        ),
        kv_transfers=tuple(KvTransfer(**transfer.model_dump()) for transfer in document.kv_transfers),
        combos=tuple(_combo(combo) for combo in document.combos),
        binding=(),
        alternatives=(),
        conflicts=(),
        evidence=(),
        warnings=(),
        solver=SolveReport(document.solver.method, 0.0, 0, (), document.solver.version),
        optimum_value=document.objective.optimum_value,
    )


def _combo(combo: ComboDocument) -> Combo:
    gpus = {name: tuple(getattr(combo, name).items()) for name in ("prefill_gpus", "decode_gpus")}
    return Combo(**{**combo.model_dump(), **gpus})


def _planned_model(model: ServedModel, *, is_batch: bool) -> PlannedModel:
    return PlannedModel(
        name=model.name,
        architecture=None if model.spec is None else architecture_of(model.spec),
        model=None if model.spec is None else model.spec.id,
        precision=model.precision,
        kv_precision=model.kv_precision,
        prefix_cache_hit_fraction=model.prefix_cache_hit_fraction,
        prefill_share_fraction=model.prefill_share_fraction,
        workloads=tuple(
            PlannedWorkload(
                name=w.name,
                input_tokens=w.input_tokens,
                output_tokens=w.output_tokens,
                rate_rps=None if is_batch else w.demand,
                requests=w.demand if is_batch else None,
                slo=None if w.slo is None else _slo(w.slo),
            )
            for w in model.workloads
        ),
        slo=_slo(model.slo),
        more_precisions=tuple(
            PlannedPrecision(precision=weights, kv_precision=cache) for weights, cache in model.more_precisions
        ),
    )


def _slo(limits: Iterable[LatencyLimit]) -> SloDocument:
    return SloDocument(**{f"{limit.metric}_p{limit.percentile}_s": limit.seconds for limit in limits})


def architecture_of(spec: ModelSpec) -> ModelSpecDocument:
    """A model as a caller would describe it."""
    known = {name: value for name, value in asdict(spec).items() if name in ModelSpecDocument.model_fields}
    mappings = {"checkpoints": dict(spec.checkpoints), "kv_schemes": dict(spec.kv_schemes)}
    return ModelSpecDocument.model_validate({**known, **mappings})


def _served_model(model: PlannedModel) -> ServedModel:
    return ServedModel(
        name=model.name,
        spec=None if model.architecture is None else inline_spec(model.model or model.name, model.architecture),
        precision=model.precision,
        kv_precision=model.kv_precision,
        workloads=tuple(
            Workload(
                w.name,
                w.input_tokens,
                w.output_tokens,
                w.rate_rps or w.requests or 0.0,
                None if w.slo is None else latency_limits(w.slo),
            )
            for w in model.workloads
        ),
        slo=latency_limits(model.slo),
        prefix_cache_hit_fraction=model.prefix_cache_hit_fraction,
        prefill_share_fraction=model.prefill_share_fraction,
        more_precisions=tuple((one.precision, one.kv_precision) for one in model.more_precisions),
    )


def gpu_figures(gpu: Gpu) -> dict[str, Any]:
    """What a GPU is, by the names of its document; the slug is not among them."""
    return {field.name: getattr(gpu, field.name) for field in fields(gpu) if field.name != "slug"}
