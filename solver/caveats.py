"""What a reader of a plan should know beside its numbers: where the search or the start-up needs a second look."""

from collections import Counter
from collections.abc import Iterator, Sequence

from solver.candidates import power_cap_fractions
from solver.plan import Rental, Replica
from solver.pools import PIECE_SIZES
from solver.problem import Problem
from solver.throughput.architecture import WEIGHT_BYTES

_FULL_WEIGHT_BYTES = 2.0


def caveats(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> tuple[str, ...]:
    """Sentences for `Plan.warnings`, each with what to do."""
    return (
        *_odd_machines(problem),
        *_odd_measurements(problem),
        *_unused_roles(problem),
        *_unused_caps(problem),
        *_idle_gpus_to_cap(problem, rentals, replicas),
        *_checkpoints(problem, replicas),
        *_mixed(replicas),
        *_pipelines_of_one_phase(replicas),
    )


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


def _unused_roles(problem: Problem) -> Iterator[str]:
    rows = sum(row.role != "aggregated" for row in problem.measured)
    if rows and problem.search.disaggregation == "off":
        yield (
            f"{rows} measured rate{'' if rows == 1 else 's'} of prefill and decode replicas did not count: "
            "search.disaggregation is off"
        )


def _unused_caps(problem: Problem) -> Iterator[str]:
    if not problem.search.power_caps_fraction:
        return
    if problem.objective.kind != "min_power" and problem.limits.max_power_watts is None:
        yield "search.power_caps_fraction did not count: watts matter to min_power and limits.max_power_watts alone"
    elif problem.measured_only or any(model.spec is None for model in problem.models):
        yield "measured rates hold without a power cap: no cap was considered for models that have no others"


def _idle_gpus_to_cap(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> Iterator[str]:
    """What power_watts counts on and no replica says."""
    lowest = min(power_cap_fractions(problem))
    if lowest >= 1:
        return
    idle: Counter[str] = Counter()
    for rental in rentals:
        idle[rental.gpu] += rental.gpus * rental.count
    for replica in replicas:
        for stage in replica.stages:
            idle[stage.gpu] -= stage.tensor_parallel
    for gpu, count in sorted(idle.items()):
        tdp_watts = problem.gpus[gpu].tdp_watts
        if count > 0 and tdp_watts:
            yield (
                f"{count} rented {gpu} run{'s' if count == 1 else ''} nothing: power_watts counts on a cap of "
                f"{tdp_watts * lowest:g} W for each (nvidia-smi -pl), which no replica and no export sets"
            )


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


def _pipelines_of_one_phase(replicas: Sequence[Replica]) -> Iterator[str]:
    deep = [r.id for r in replicas if r.role != "aggregated" and len(r.stages) > 1]
    if deep:
        yield (
            f"{', '.join(deep[:5])}{' ...' if deep[5:] else ''}: pipelines that prefill or decode alone need an "
            "engine that hands over KV caches between pipelines, which vLLM's NixlConnector does not "
            "(search.max_pipeline_stages: 1 avoids them)"
        )
