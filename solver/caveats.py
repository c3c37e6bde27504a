"""What a reader of a plan should know beside its numbers: where the search or the start-up needs a second look."""

from collections.abc import Iterator, Sequence

from solver.plan import Rental, Replica
from solver.pools import PIECE_SIZES
from solver.problem import Problem
from solver.throughput.architecture import WEIGHT_BYTES

_FULL_WEIGHT_BYTES = 2.0


def caveats(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> tuple[str, ...]:
    """Sentences for `Plan.warnings`, each with what to do."""
    return (*_odd_machines(problem), *_odd_measurements(problem), *_checkpoints(problem, replicas), *_mixed(replicas))


def _odd_machines(problem: Problem) -> Iterator[str]:
    odd = sorted({offer.gpus for offer in problem.offers if offer.gpus not in PIECE_SIZES and offer.gpus < 8})
    if odd:
        sizes = ", ".join(str(gpus) for gpus in odd)
        yield (
            f"offers of {sizes} GPUs are used in pieces of 1, 2, 4 and 8: replicas on 3, 5, 6 or 7 GPUs of one "
            "machine are not considered, and the proof does not cover them"
        )


def _odd_measurements(problem: Problem) -> Iterator[str]:
    for row in problem.measured:
        gpus = sum(stage.tensor_parallel for stage in row.stages)
        if gpus not in PIECE_SIZES and len({stage.gpu for stage in row.stages}) == 1:
            size = next((size for size in PIECE_SIZES if size > gpus), None)
            takes = f"takes up {size}" if size else "does not fit"
            yield f"the measured replica of {row.model} on {gpus} x {row.stages[0].gpu} {takes} in one machine"


def _checkpoints(problem: Problem, replicas: Sequence[Replica]) -> Iterator[str]:
    running = {replica.model for replica in replicas}
    for model in problem.models:
        quantised = WEIGHT_BYTES[model.precision] < _FULL_WEIGHT_BYTES
        if model.name in running and model.spec is not None and quantised and not problem.measured_only:
            name = model.spec.hf_id or model.spec.id
            yield (
                f"{model.name}: engine_args name {name}; disk and rates are those of a checkpoint already at "
                f"{model.precision}, so put the name of one there"
            )


def _mixed(replicas: Sequence[Replica]) -> Iterator[str]:
    uneven = [r.id for r in replicas if len({(s.gpu, s.tensor_parallel) for s in r.stages}) > 1]
    if uneven:
        yield (
            f"{', '.join(uneven[:5])}{' ...' if uneven[5:] else ''}: stages differ in GPU or tensor parallelism: "
            "use an engine that places stages one by one (search.mixed_gpu_pipelines: false avoids mixed GPUs)"
        )
