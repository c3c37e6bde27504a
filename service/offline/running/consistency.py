"""Whether the parts of an offline plan fit together: plans come from files, and files get edited.

Used by schedule.py before anything is written that would start on the wrong GPUs.
"""

from collections.abc import Iterator

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.export.errors import NothingToRunError
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlacedReplica, SimulatedStage, StageModel
from sutler.service.offline.running.engine import loaded


def check_runnable(plan: OfflinePlanDocument) -> None:
    """Raises NothingToRunError for a plan without stages, DocumentError with every contradiction."""
    if not plan.stages or plan.hardware is None:
        conflicts = "; ".join(
            f"{one.constraint} needs {one.needed:g} {one.unit}, there is {one.available:g}" for one in plan.conflicts
        )
        remedy = conflicts or "give it requests, hardware that its models fit on, or more time, and plan again"
        raise NothingToRunError(f"the plan is {plan.status} and has no stages", remedy)
    stages = (problem for at, stage in enumerate(plan.stages) for problem in _stage(plan, at, stage))
    problems = [*_models(plan), *stages]
    if problems:
        raise DocumentError(problems)


def _models(plan: OfflinePlanDocument) -> Iterator[FieldProblem]:
    for position, model in enumerate(plan.models):
        named = loaded(model)
        if named.startswith("-"):
            remedy = "must name the model to load: a repository or a path, which does not begin with -"
            yield FieldProblem(f"models[{position}].architecture.hf_id", short_repr(named), remedy)


def _stage(plan: OfflinePlanDocument, at: int, stage: SimulatedStage) -> Iterator[FieldProblem]:
    known = {model.name for model in plan.models}
    there = {(i.host, gpu) for i in plan.hardware.islands for gpu in i.gpus} if plan.hardware else set()
    taken: dict[tuple[int, int], str] = {}
    seen: set[str] = set()
    for position, model in enumerate(stage.models):
        path = f"stages[{at}].models[{position}]"
        if model.model not in known or model.model in seen:
            remedy = "must be one of the plan's models, each at most once in a stage"
            yield FieldProblem(f"{path}.model", short_repr(model.model), remedy)
        seen.add(model.model)
        for number, replica in enumerate(model.replicas):
            yield from _replica(f"{path}.replicas[{number}]", model, replica, there, taken)


def _replica(
    path: str,
    model: StageModel,
    replica: PlacedReplica,
    there: set[tuple[int, int]],
    taken: dict[tuple[int, int], str],
) -> Iterator[FieldProblem]:
    gpus = [(gpu.host, gpu.gpu) for gpu in replica.gpus]
    shown = short_repr(gpus)
    if len(set(gpus)) != model.tensor_parallel or len(gpus) != model.tensor_parallel:
        remedy = f"must name as many GPUs as tensor_parallel, {model.tensor_parallel}"
        yield FieldProblem(f"{path}.gpus", shown, remedy)
    if len({host for host, _ in gpus}) > 1:
        yield FieldProblem(f"{path}.gpus", shown, "must be on one host: a replica does not span machines")
    if not set(gpus) <= there:
        yield FieldProblem(f"{path}.gpus", shown, "must be GPUs that hardware.islands lists")
    for gpu in gpus:
        owner = taken.setdefault(gpu, path)
        if owner != path:
            yield FieldProblem(f"{path}.gpus", shown, f"takes a GPU that {owner} has in the same stage")
            break
    if [one.number for one in model.replicas].count(replica.number) > 1:
        yield FieldProblem(f"{path}.number", str(replica.number), "is used twice: every replica needs its own")
