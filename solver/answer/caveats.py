"""What a reader of a plan should know beside its numbers: where the search or the start-up needs a second look."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

from sutler.solver.answer.engine_args import checkpoint_of
from sutler.solver.candidates.engines import can_run
from sutler.solver.candidates.enumerate import power_cap_fractions
from sutler.solver.market.machines import MOST_MACHINES, machines_able
from sutler.solver.market.pools import PIECE_SIZES, Pool, disk_needed_gb, group_offers
from sutler.solver.plan import Rental, Replica
from sutler.solver.problem import LatencyMetric, Problem

# Chosen: slower than people read aloud, wait for a first word, or a batch job takes for one request.
PLAUSIBLE_S: Final[Mapping[LatencyMetric, float]] = {"tpot": 1.0, "ttft": 300.0, "e2e": 7200.0}


def caveats(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> tuple[str, ...]:
    """Sentences for `Plan.warnings`, each with what to do."""
    pools, pool_of_offer = group_offers(problem)
    return (
        *_implausible_limits(problem),
        *_at_low_ends(problem),
        *_odd_machines(problem),
        *_odd_measurements(problem),
        *_small_disks(problem, [pools[pool] for pool in pool_of_offer]),
        *_unused_roles(problem),
        *_machines_apart(machines_able(problem, pools, pool_of_offer)),
        *_unused_caps(problem),
        *_idle_gpus_to_cap(problem, rentals, replicas),
        *_checkpoints(problem, replicas),
        *_beyond_vllm(replicas),
    )


def _implausible_limits(problem: Problem) -> Iterator[str]:
    for model in problem.models:
        for limit in dict.fromkeys(limit for workload in model.workloads for limit in model.limits_of(workload)):
            if limit.seconds > PLAUSIBLE_S[limit.metric]:
                name = f"{limit.metric}_p{limit.percentile}_s"
                yield (
                    f"{model.name}: {name} of {limit.seconds:g} s limits next to nothing: "
                    f"if milliseconds were meant, write {limit.seconds / 1000:g}"
                )


def _at_low_ends(problem: Problem) -> Iterator[str]:
    if problem.objective.robust:
        yield (
            "value, bound, throughput and utilisation are at the low end of every rate's band (objective.robust); "
            "engines will do more unless all bands are right at their worst"
        )


def _odd_machines(problem: Problem) -> Iterator[str]:
    odd = sorted({offer.gpus for offer in problem.offers if offer.gpus not in PIECE_SIZES and offer.gpus < 8})
    if odd:
        sizes = ", ".join(str(gpus) for gpus in odd)
        yield (
            f"offers of {sizes} GPUs are used whole or in pieces of 1, 2, 4 and 8: replicas on 3, 5, 6 or 7 GPUs of "
            "a larger machine are not considered, and the proof does not cover them"
        )


def _odd_measurements(problem: Problem) -> Iterator[str]:
    for row in problem.measured:
        gpus = sum(stage.tensor_parallel for stage in row.stages)
        if gpus not in PIECE_SIZES and len({stage.gpu for stage in row.stages}) == 1:
            size = next((size for size in PIECE_SIZES if size > gpus), None)
            takes = f"takes up {size}" if size else "does not fit"
            yield f"the measured replica of {row.model} on {gpus} x {row.stages[0].gpu} {takes} in a machine of more"


def _small_disks(problem: Problem, pools: Sequence[Pool]) -> Iterator[str]:
    """Where a checkpoint per piece is counted although pieces might share one; `pools`: of the offers."""
    small = sum(isfinite(pool.disk_gb_per_gpu) for pool in pools)
    if small:
        whole = sum(not offer.divisible for offer in problem.offers)
        remedy = f" (from {sum(disk_needed_gb(problem)):.0f} GB on whole machines share them)" if whole else ""
        yield (
            f"{small} offer{' has a disk that is' if small == 1 else 's have disks that are'} counted with a "
            f"checkpoint for every piece on them, which may be pessimistic{remedy}"
        )


def _unused_roles(problem: Problem) -> Iterator[str]:
    rows = sum(row.role != "aggregated" for row in problem.measured)
    if rows and problem.search.disaggregation == "off":
        yield (
            f"{rows} measured rate{'' if rows == 1 else 's'} of prefill and decode replicas did not count: "
            "search.disaggregation is off"
        )


def _machines_apart(able: int) -> Iterator[str]:
    """Where more machines, `able`, could hand over inside themselves than were considered."""
    if able > MOST_MACHINES:
        yield (
            f"of {able} machines for rent without a network, prefill and decode replicas were considered on "
            f"{MOST_MACHINES}, the cheapest of each GPU type; the proof covers no more (market.filter chooses)"
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
            idle[stage.gpu] -= stage.gpus
    for gpu, count in sorted(idle.items()):
        tdp_watts = problem.gpus[gpu].tdp_watts
        if count > 0 and tdp_watts:
            yield (
                f"{count} rented {gpu} run{'s' if count == 1 else ''} nothing: power_watts counts on a cap of "
                f"{tdp_watts * lowest:g} W for each (nvidia-smi -pl), which no replica and no export sets"
            )


def _checkpoints(problem: Problem, replicas: Sequence[Replica]) -> Iterator[str]:
    models = {model.name: model for model in problem.models}
    for model in dict.fromkeys(models[replica.model].at(replica.precision) for replica in replicas):
        if model.spec is not None and not problem.measured_only and checkpoint_of(model) is None:
            yield (
                f"{model.name}: engine_args name {model.spec.repository}; disk and rates are those of a checkpoint "
                f"already at {model.precision}, so put the name of one there"
            )


def _can_vllm(replica: Replica) -> bool:
    degrees = [stage.tensor_parallel for stage in replica.stages]
    return can_run("vllm", replica.role, degrees, guesses="speculative_config" in dict(replica.engine_args))


def _beyond_vllm(replicas: Sequence[Replica]) -> Iterator[str]:
    """Layouts of engines that are made for them, and measured ones: no export starts them."""
    special = [r.id for r in replicas if not _can_vllm(r)]
    if special:
        yield (
            f"{', '.join(special[:5])}{' ...' if special[5:] else ''}: stages that differ in tensor parallelism, or "
            "pipelines that guess tokens, prefill or decode alone: use an engine that places stages one by one, "
            "since vLLM cannot run them (engine: vllm leaves all but measured ones out)"
        )
