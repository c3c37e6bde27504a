"""From the solver's offline plan to its document.

Flow: solver/offline -> issue_offline_plan, issue_infeasible (here) -> file or store -> planned.py, the way back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import numpy as np

from sutler.service.documents.model import GpuDocument
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.hardware_schema import LoadingDocument
from sutler.service.offline.plan_schema import (
    ApplicationModel,
    ComparedSchedule,
    IslandDocument,
    LowerBoundDocument,
    MachineChoice,
    OfflineConflict,
    OfflineObjectiveResult,
    OfflinePlanDocument,
    OfflineRental,
    OfflineSolverReport,
    PlacedGpu,
    PlacedReplica,
    PlannedHardware,
    ScheduledModel,
    ScheduledStage,
    SimulatedStage,
    StageEnd,
    StageModel,
)
from sutler.service.offline.translate import OfflineTranslation
from sutler.service.translation.mapping import mapped
from sutler.service.translation.to_plan import architecture_of
from sutler.solver.offline.application import Application, Node
from sutler.solver.offline.hardware import Hardware, Loading
from sutler.solver.offline.plan import OfflinePlan
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import ExecutedStage, RunningReplica, ScheduleStage
from sutler.solver.throughput.architecture import PRECISION_BYTES
from sutler.solver.units import BYTES_PER_GB
from sutler.solver.version import VERSION

OPTIMAL_GAP: Final = 1e-6  # chosen: above what sums of simulated steps round to, below what anybody cares for
NOTHING_RUNS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("strategy", "makespan_s", "cost_usd", "lower_bound")),
    **dict.fromkeys(("rentals", "schedule", "stages", "compared", "frontier"), ()),
}
SCHEMA: Final = "sutler/offline-plan/v1"
CUT_SHORT: Final = "The search was ended by search.time_limit_s: a longer one may find a faster schedule."


@dataclass(frozen=True, slots=True)
class Renting:
    """What was chosen from a market. `start_up_s`: from the order to the start of the application; `bound`: no choice
    is better than this, in the objective's unit, times from the order; None where nothing is proven."""

    rentals: tuple[OfflineRental, ...]
    frontier: tuple[MachineChoice, ...] = ()
    bound: float | None = None
    start_up_s: float = 0.0

    @property
    def usd(self) -> float:
        return sum(rental.usd for rental in self.rentals)


def issue_offline_plan(
    plan: OfflinePlan,
    translation: OfflineTranslation,
    hardware: Hardware,
    *,
    plan_id: UUID,
    created_at: datetime,
    revision: int = 1,
    renting: Renting | None = None,
    warnings: Iterable[str] = (),
) -> OfflinePlanDocument:
    """The document of a plan on this hardware; `renting` where it was chosen from a market."""
    application, execution = translation.application, plan.execution
    objective = _objective(plan, translation.document, renting)
    return OfflinePlanDocument(
        schema=SCHEMA,
        id=plan_id,
        revision=revision,
        created_at=created_at,
        status=_status(objective),
        strategy=plan.strategy,
        objective=objective,
        makespan_s=execution.makespan_s,
        cost_usd=None if renting is None else renting.usd,
        lower_bound=LowerBoundDocument.model_validate(plan.bound, from_attributes=True),
        seed=translation.options.seed,
        application=translation.document,
        hardware=hardware_document(hardware),
        rentals=() if renting is None else renting.rentals,
        schedule=tuple(_scheduled(stage, application) for stage in plan.schedule),
        stages=tuple(_simulated(stage, application) for stage in execution.stages),
        models=_models(translation, hardware, pile=plan.pile, finish_s=execution.node_finish_s),
        compared=tuple(ComparedSchedule(strategy=name, makespan_s=taken) for name, taken in plan.rivals_s.items()),
        frontier=() if renting is None else renting.frontier,
        conflicts=(),
        solver=OfflineSolverReport(
            seconds=plan.seconds,
            evaluated_schedules=plan.evaluated_schedules,
            hit_time_limit=plan.hit_time_limit,
            version=VERSION,
        ),
        warnings=tuple(warnings),
    )


def issue_infeasible(
    translation: OfflineTranslation,
    conflicts: Iterable[OfflineConflict],
    *,
    pile: Pile,
    plan_id: UUID,
    created_at: datetime,
    seconds: float = 0.0,
    warnings: Iterable[str] = (),
) -> OfflinePlanDocument:
    """The document that says why there is no plan."""
    hardware, kind = translation.hardware, translation.document.objective.kind
    return OfflinePlanDocument(
        schema=SCHEMA,
        id=plan_id,
        revision=1,
        created_at=created_at,
        status="infeasible",
        objective=OfflineObjectiveResult(kind=kind, value=None, bound=None, relative_gap=None),
        seed=translation.options.seed,
        application=translation.document,
        hardware=None if hardware is None else hardware_document(hardware),
        models=_models(translation, hardware, pile=pile, finish_s=None),
        conflicts=tuple(conflicts),
        **NOTHING_RUNS,
        solver=OfflineSolverReport(seconds=seconds, evaluated_schedules=0, hit_time_limit=False, version=VERSION),
        warnings=tuple(warnings),
    )


def cut_short(plan: OfflinePlan) -> Iterator[str]:
    """What to know of a search that its time limit ended."""
    if plan.hit_time_limit:
        yield CUT_SHORT


def hardware_document(hardware: Hardware) -> PlannedHardware:
    """The GPUs, for a plan."""
    return PlannedHardware(
        gpu=hardware.gpu.slug,
        islands=tuple(IslandDocument.model_validate(one, from_attributes=True) for one in hardware.islands),
        across_gb_per_s=hardware.across_gb_per_s,
        loading=_loading(hardware.loading),
        figures=mapped(GpuDocument, hardware.gpu),
    )


def placed_replica(replica: RunningReplica) -> PlacedReplica:
    """A replica, for a plan."""
    gpus = tuple(PlacedGpu(host=host, gpu=gpu) for host, gpu in replica.gpus)
    return PlacedReplica(number=replica.number, gpus=gpus, ready_s=replica.ready_s, loaded=replica.is_loaded)


def _loading(loading: Loading) -> LoadingDocument:
    rows = [
        {"model": node, "tensor_parallel": size, "seconds": seconds}
        for (node, size), seconds in loading.table.items()
    ]
    return LoadingDocument.model_validate(asdict(loading) | {"table": rows})


def _objective(plan: OfflinePlan, document: ApplicationDocument, renting: Renting | None) -> OfflineObjectiveResult:
    kind = document.objective.kind
    bound: float | None
    value, bound = plan.execution.makespan_s, plan.bound.seconds
    if renting is not None:
        value = renting.usd if kind == "min_cost" else renting.start_up_s + value
        bound = renting.bound
    gap = None if bound is None else abs(bound - value) / abs(value) if value else 0.0
    return OfflineObjectiveResult(kind=kind, value=value, bound=bound, relative_gap=gap)


def _status(objective: OfflineObjectiveResult) -> Literal["optimal", "feasible"]:
    gap = objective.relative_gap
    return "optimal" if gap is not None and gap <= OPTIMAL_GAP else "feasible"


def _scheduled(stage: ScheduleStage, application: Application) -> ScheduledStage:
    models = tuple(
        ScheduledModel(model=application.nodes[node].name, **asdict(plan))
        for node, plan in sorted(stage.plans.items())
    )
    return ScheduledStage(models=models, until=_until(stage, application))


def _until(stage: ScheduleStage, application: Application) -> StageEnd | None:
    if stage.until_node is None:
        return None
    return StageEnd(model=application.nodes[stage.until_node].name, fraction=stage.until_fraction)


def _simulated(executed: ExecutedStage, application: Application) -> SimulatedStage:
    models = tuple(
        StageModel(
            model=application.nodes[node].name,
            **asdict(plan),
            replicas=tuple(placed_replica(replica) for replica in executed.replicas if replica.node == node),
            finished_requests=int(executed.finished_requests[node]),
            written_tokens=int(executed.written_tokens[node]),
        )
        for node, plan in sorted(executed.stage.plans.items())
    )
    return SimulatedStage(
        start_s=executed.start_s,
        end_s=executed.end_s,
        models=models,
        until=_until(executed.stage, application),
        busy_gpu_s=executed.busy_gpu_s,
        loading_gpu_s=executed.loading_gpu_s,
    )


def _models(
    translation: OfflineTranslation, hardware: Hardware | None, *, pile: Pile, finish_s: tuple[float, ...] | None
) -> tuple[ApplicationModel, ...]:
    nodes = translation.application.nodes
    inputs, outputs = (
        np.bincount(pile.node, weights=tokens, minlength=len(nodes))
        for tokens in (pile.input_tokens, pile.output_tokens)
    )
    requests = np.bincount(pile.node, minlength=len(nodes))
    return tuple(
        ApplicationModel(
            name=node.name,
            model=node.spec.id,
            architecture=architecture_of(node.spec),
            precision=node.precision,
            kv_precision=node.kv_precision,
            requests=int(requests[position]),
            input_tokens=round(inputs[position]),
            output_tokens=round(outputs[position]),
            finish_s=None if finish_s is None else finish_s[position],
            load_s={} if hardware is None else _load_s(node, hardware, translation.options.tensor_parallel),
        )
        for position, node in enumerate(nodes)
    )


def _load_s(node: Node, hardware: Hardware, sizes: Iterable[int]) -> dict[str, float]:
    weights_gb = node.weights_gb or node.spec.total_params * PRECISION_BYTES[node.precision] / BYTES_PER_GB
    return {
        str(size): hardware.loading.seconds(node.name, weights_gb, size) for size in sizes if size <= hardware.gpus
    }
