"""All schedules of whole stages, each executed: what a tiny application takes at best.

Here a stage ends when a model is done; schedules that also stop a model in the middle are not tried, so a search
that does so may be faster.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import ScheduleRun
from sutler.solver.offline.placement import can_place
from sutler.solver.offline.stages import ExecutionPlan, RunState, ScheduleStage


def best_makespan_s(costs: Costs) -> tuple[float, int]:
    """(of the best schedule, how many there are)."""
    everything = frozenset(costs.order)
    best_s, count = float("inf"), 0

    def visit(stages: tuple[ScheduleStage, ...]) -> None:
        nonlocal best_s, count
        run = ScheduleRun(costs)
        for stage in stages:
            run.stage(stage, returning=everything)
        if run.is_done:
            best_s, count = min(best_s, run.execution().makespan_s), count + 1
            return
        for plans in _stages(costs, run.standing()):
            visit((*stages, ScheduleStage(plans)))

    visit(())
    return best_s, count


def _stages(costs: Costs, now: RunState) -> Iterator[Mapping[int, ExecutionPlan]]:
    """Every valid one."""
    open_nodes = [node for node in costs.order if not now.is_done(node)]
    for chosen in product(*((None, *costs.plans[node]) for node in open_nodes)):
        plans = {node: plan for node, plan in zip(open_nodes, chosen, strict=True) if plan is not None}
        degrees = [plan.tensor_parallel for plan in plans.values() for _ in range(plan.data_parallel)]
        ready = all(source in plans or now.is_done(source) for node in plans for source in costs.sources[node])
        if plans and ready and can_place(costs.hardware, degrees):
            yield plans
