"""The two strategies that SamuLLM is compared with (Fang et al., §5): all GPUs to one model, or all models at once.

Flow: Forecaster, where things stand -> max_heuristic, min_heuristic (here) -> the next stage.
"""

from collections.abc import Iterator

from sutler.solver.offline.changing import fit
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.stages import ExecutionPlan, RunState, ScheduleStage


def max_heuristic(forecaster: Forecaster, now: RunState) -> ScheduleStage:
    """All GPUs to the first model that is not done and whose inputs are, in the way in which it is done soonest.

    Without preemption what runs goes on as it is.
    """
    if now.running and not forecaster.costs.options.preemption:
        return ScheduleStage(dict(now.running))
    for node in forecaster.costs.order:
        if not now.is_done(node) and forecaster.is_ready(now, node, {}):
            plans = forecaster.costs.plans[node]
            most = max(plan.gpus for plan in plans)
            largest = [plan for plan in plans if plan.gpus == most]
            return ScheduleStage(
                {node: min(largest, key=lambda plan: forecaster.stage(now, ScheduleStage({node: plan})).at_s)}
            )
    return ScheduleStage({})


def min_heuristic(forecaster: Forecaster, now: RunState) -> ScheduleStage:
    """Runs as many models as fit, with the GPUs divided among them as evenly as can be.

    Of the even divisions the one with the most throughput, found by changing one model, or two, at a time. Without
    preemption what runs stays as it is, and the others share what is left.
    """
    hardware = forecaster.costs.hardware
    fixed = {} if forecaster.costs.options.preemption else dict(now.running)
    plans = dict(fixed)
    for node in forecaster.costs.order:
        if node not in plans and not now.is_done(node) and forecaster.is_ready(now, node, plans):
            least = forecaster.costs.plans[node][0]
            if fit(forecaster.costs.hardware, {**plans, node: least}):
                plans[node] = least
    free = [node for node in plans if node not in fixed]
    if not free:
        return ScheduleStage(plans)
    share = (hardware.gpus - sum(plan.gpus for plan in fixed.values())) // len(free)
    for node in free:
        for plan in _upto(forecaster, node, share):
            if fit(forecaster.costs.hardware, {**plans, node: plan}):
                plans[node] = plan
    return ScheduleStage(_evenly_best(forecaster, now, plans, free, share))


def _evenly_best(
    forecaster: Forecaster, now: RunState, plans: dict[int, ExecutionPlan], free: list[int], share: int
) -> dict[int, ExecutionPlan]:
    def worth(asked: dict[int, ExecutionPlan]) -> tuple[int, float]:
        after = forecaster.stage(now, ScheduleStage(asked))
        return sum(plan.gpus for plan in asked.values()), forecaster.flops(now, after) / (after.at_s - now.at_s)

    best = worth(plans)
    while True:
        found = None
        for changed in _neighbours(forecaster, plans, free, share):
            reached = worth(changed)
            if reached > best:
                best, found = reached, changed
        if found is None:
            return plans
        plans = found


def _neighbours(
    forecaster: Forecaster, plans: dict[int, ExecutionPlan], free: list[int], share: int
) -> Iterator[dict[int, ExecutionPlan]]:
    """Yields the plans with another one of at most one GPU more than its share for one model, or with the plans of
    two exchanged."""
    for node in free:
        for plan in _upto(forecaster, node, share + 1):
            changed = {**plans, node: plan}
            if plan != plans[node] and fit(forecaster.costs.hardware, changed):
                yield changed
        for other in free:
            if other > node and plans[other] != plans[node]:
                exchanged = {**plans, node: plans[other], other: plans[node]}
                if all(exchanged[n] in forecaster.costs.plans[n] for n in (node, other)):
                    yield exchanged


def _upto(forecaster: Forecaster, node: int, gpus: int) -> list[ExecutionPlan]:
    """The plans with the most GPUs of at most so many, or with the fewest that it needs."""
    plans = forecaster.costs.plans[node]
    most = max((plan.gpus for plan in plans if plan.gpus <= gpus), default=plans[0].gpus)
    return [plan for plan in plans if plan.gpus == most]
