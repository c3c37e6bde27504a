"""SamuLLM's greedy search (Fang et al., Algorithm 1): stage by stage, plans with the most throughput per added GPU.

Flow: Forecaster -> greedy (here) -> improvement.py begins with it; it is a strategy of its own, too.
"""

from sutler.solver.offline.changing import fit
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.stages import ExecutionPlan, RunState, ScheduleStage


def greedy(forecaster: Forecaster, now: RunState) -> ScheduleStage:
    """The next stage. Without preemption what runs stays as it is (SamuLLM §5.5)."""
    return ScheduleStage(
        best_stage(forecaster, now, {} if forecaster.costs.options.preemption else dict(now.running))
    )


def best_stage(forecaster: Forecaster, now: RunState, fixed: dict[int, ExecutionPlan]) -> dict[int, ExecutionPlan]:
    """Lines 3 to 23 of Algorithm 1; `fixed` are in the stage from the beginning and not changed."""
    plans = dict(fixed)
    throughput = _throughput(forecaster, now, plans)
    while True:
        best: tuple[float, int, ExecutionPlan, float] | None = None
        used = sum(plan.gpus for plan in plans.values())
        for node, plan in _candidates(forecaster, now, plans, fixed):
            before = plans.get(node)
            added = plan.gpus - (before.gpus if before else 0)
            if added <= 0 or used + added > forecaster.costs.hardware.gpus:
                continue
            larger = {**plans, node: plan}
            if not fit(forecaster.costs.hardware, larger):
                continue
            reached = _throughput(forecaster, now, larger)
            gain = (reached - throughput) / added
            if best is None or gain > best[0]:
                best = (gain, node, plan, reached)
        if best is None or (best[0] < 0 and plans):
            return plans
        _, node, plan, throughput = best
        plans[node] = plan


def _candidates(
    forecaster: Forecaster, now: RunState, plans: dict[int, ExecutionPlan], fixed: dict[int, ExecutionPlan]
) -> list[tuple[int, ExecutionPlan]]:
    """Every plan of every model whose inputs are ready: its sources are done or in the stage."""
    return [
        (node, plan)
        for node in forecaster.costs.order
        if node not in fixed and not now.is_done(node) and forecaster.is_ready(now, node, plans)
        for plan in forecaster.costs.plans[node]
    ]


def _throughput(forecaster: Forecaster, now: RunState, plans: dict[int, ExecutionPlan]) -> float:
    """FLOP/s until the first model is done (SamuLLM §3)."""
    if not plans:
        return 0.0
    after = forecaster.stage(now, ScheduleStage(plans))
    return forecaster.flops(now, after) / (after.at_s - now.at_s) if after.at_s < float("inf") else 0.0
