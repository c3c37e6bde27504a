"""Whether the parts of a plan fit together: plans come from files, and files get edited.

What the schema cannot say is checked here, before anything is written that would start on the wrong GPUs, and what
no command line can carry is refused.
"""

import re
from collections.abc import Iterator
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument, ReplicaDocument, StageDocument
from sutler.service.documents.rules import repeats
from sutler.service.errors import FieldProblem, short_repr

ARGUMENT: Final = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUL: Final = "\x00"


def check_consistency(plan: PlanDocument) -> None:
    """Raises DocumentError with every contradiction."""
    problems = [
        *_repeated_ids(plan),
        *_places(plan),
        *_shared_gpus(plan),
        *_engines(plan),
        *_routes(plan),
        *_hand_overs(plan),
    ]
    if problems:
        raise DocumentError(problems)


def _wrong(field: str, value: object, remedy: str) -> FieldProblem:
    return FieldProblem(field, short_repr(value), remedy)


def _repeated_ids(plan: PlanDocument) -> Iterator[FieldProblem]:
    ids = [replica.id for replica in plan.replicas]
    for number, _ in repeats(ids):
        yield _wrong(f"replicas[{number}].id", ids[number], "is used twice: every replica needs its own")


def _stages(plan: PlanDocument) -> Iterator[tuple[str, StageDocument, int]]:
    """Yields every stage with its path and the ranks of its replica."""
    for number, replica in enumerate(plan.replicas):
        for position, stage in enumerate(replica.stages):
            yield f"replicas[{number}].stages[{position}]", stage, replica.data_parallel


def _places(plan: PlanDocument) -> Iterator[FieldProblem]:
    for number, replica in enumerate(plan.replicas):
        if not replica.stages:
            yield FieldProblem(f"replicas[{number}].stages", None, "must not be empty")
    for path, stage, ranks in _stages(plan):
        if not 0 <= stage.rental < len(plan.rentals):
            yield _wrong(f"{path}.rental", stage.rental, f"must be an index into the {len(plan.rentals)} rentals")
            continue
        rental = plan.rentals[stage.rental]
        if not 0 <= stage.machine < rental.count:
            yield _wrong(f"{path}.machine", stage.machine, f"must be below the rental's count of {rental.count}")
        gpus = stage.tensor_parallel * ranks
        if len(set(stage.gpu_indices)) != gpus or len(stage.gpu_indices) != gpus:
            remedy = f"must name as many GPUs as tensor_parallel{' x data_parallel' * (ranks > 1)}, {gpus}"
            yield _wrong(f"{path}.gpu_indices", list(stage.gpu_indices), remedy)
        if not all(0 <= index < rental.gpus for index in stage.gpu_indices):
            remedy = f"must be below {rental.gpus}, the GPUs of the rental's machine"
            yield _wrong(f"{path}.gpu_indices", list(stage.gpu_indices), remedy)


def _shared_gpus(plan: PlanDocument) -> Iterator[FieldProblem]:
    taken: dict[tuple[int, int, int], str] = {}
    for path, stage, _ in _stages(plan):
        for index in stage.gpu_indices:
            owner = taken.setdefault((stage.rental, stage.machine, index), path)
            if owner != path:
                yield _wrong(f"{path}.gpu_indices", list(stage.gpu_indices), f"takes a GPU that {owner} has")
                break


def _engines(plan: PlanDocument) -> Iterator[FieldProblem]:
    for number, replica in enumerate(plan.replicas):
        path = f"replicas[{number}]"
        if _NUL in replica.id + replica.model:
            yield _wrong(path, replica.id + replica.model, "contains a NUL character: remove it")
        yield from _engine_arguments(f"{path}.engine_args", replica)
        for name, value in replica.engine_env.items():
            if not _VARIABLE.fullmatch(name):
                yield _wrong(f"{path}.engine_env", name, "is no name of an environment variable")
            elif _NUL in value:
                yield _wrong(f"{path}.engine_env.{name}", value, "contains a NUL character: remove it")


def _engine_arguments(path: str, replica: ReplicaDocument) -> Iterator[FieldProblem]:
    model = replica.engine_args.get("model")
    if not isinstance(model, str) or not model or model.startswith("-"):
        remedy = "must name the model to load: a repository or a path, which does not begin with -"
        yield FieldProblem(f"{path}.model", None if model is None else short_repr(model), remedy)
    for name, value in replica.engine_args.items():
        if not ARGUMENT.fullmatch(name):
            yield _wrong(path, name, "is no argument of vLLM: lower-case letters, digits and _")
        elif isinstance(value, str) and _NUL in value:
            yield _wrong(f"{path}.{name}", value, "contains a NUL character: remove it")
    widest = max((stage.tensor_parallel for stage in replica.stages), default=1)
    sizes = {
        "tensor_parallel_size": widest,
        "pipeline_parallel_size": len(replica.stages),
        "data_parallel_size": replica.data_parallel,
        "enable_expert_parallel": replica.expert_parallel > 1,
    }
    for name, size in sizes.items():
        if replica.engine_args.get(name, size) != size:
            yield _wrong(f"{path}.{name}", replica.engine_args[name], f"must be {size}, as in the replica")


def _routes(plan: PlanDocument) -> Iterator[FieldProblem]:
    models = {replica.id: replica.model for replica in plan.replicas if replica.role != "decode"}
    seen: set[tuple[str, str]] = set()
    for number, route in enumerate(plan.routing):
        path = f"routing[{number}]"
        if (route.model, route.workload) in seen:
            yield _wrong(f"{path}.workload", route.workload, "is routed twice")
        seen.add((route.model, route.workload))
        for replica in route.fractions:
            if models.get(replica) != route.model:
                yield _wrong(
                    f"{path}.fractions",
                    replica,
                    f"must be replicas of model {short_repr(route.model)} that take prompts",
                )


def _hand_overs(plan: PlanDocument) -> Iterator[FieldProblem]:
    known = {(replica.id, replica.role, replica.model) for replica in plan.replicas}
    for number, one in enumerate(plan.kv_transfers):
        for role, replica in (("prefill", one.prefill), ("decode", one.decode)):
            if (replica, role, one.model) not in known:
                remedy = f"must be a {role} replica of model {short_repr(one.model)}"
                yield _wrong(f"kv_transfers[{number}].{role}", replica, remedy)
