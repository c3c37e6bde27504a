"""The problem in which a fleet may only grow or shrink: nothing is for choice but the configurations that it has.

What is left out by the search would waste time; what the search cannot leave out alone is counted on for nothing.
"""

from collections.abc import Collection
from dataclasses import replace

from sutler.service.simulation.simulated import Configuration
from sutler.solver.candidates.enumerate import roles_of
from sutler.solver.candidates.shapes import pipeline_shapes
from sutler.solver.market.pools import checkpoint_disk_gb
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.problem import Derating, MeasuredStage, Problem, ServedModel


def of_configurations(problem: Problem, own: Collection[Configuration]) -> Problem:
    """The problem, only with replicas of these configurations; without alternatives, which would be of other GPUs."""
    stages = [stages for _, _, stages, *_ in own]
    degrees = {size for *_, one, ranks, _ in own for _, degree in one for size in (degree, degree * ranks)}
    gpus = {gpu for one in stages for gpu, _ in one}
    smaller = replace(
        problem,
        offers=tuple(offer for offer in problem.offers if offer.gpu in gpus),
        search=replace(
            problem.search,
            tensor_parallel=tuple(sorted(degrees)),
            max_pipeline_stages=max(len(one) for one in stages),
            mixed_gpu_pipelines=any(len({gpu for gpu, _ in one}) > 1 for one in stages),
        ),
        options=replace(problem.options, alternatives=False),
    )
    others = (
        Derating(
            model,
            tuple(MeasuredStage(*stage) for stage in stages),
            0.0,
            role,
            data_parallel=ranks,
            precision=precision,
        )
        for model, role, stages, ranks, precision in sorted(_configurations(smaller) - set(own), key=str)
    )
    return replace(smaller, derated=(*problem.derated, *others))


def _configurations(problem: Problem) -> set[Configuration]:
    """All that the search would look at."""
    supply = build_supply(problem)
    each = (one for model in problem.models for one in model.at_each_precision)
    return {found for model in each for found in _of_model(problem, supply, model)}


def _of_model(problem: Problem, supply: Supply, model: ServedModel) -> set[Configuration]:
    found: set[Configuration] = set()
    for role in roles_of(problem):
        shapes = pipeline_shapes(problem, supply, model, checkpoint_disk_gb(model), role)
        columns = (shapes.pool.tolist(), shapes.tensor_parallel.tolist(), shapes.data_parallel.tolist())
        for pools, degrees, ranks in zip(*columns, strict=True):
            stages = tuple(
                (supply.pools[pool].gpu, degree) for pool, degree in zip(pools, degrees, strict=True) if pool >= 0
            )
            found.add((model.name, role, stages, ranks, model.precision))
    return found
