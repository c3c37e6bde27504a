"""What runs when one stage gives way to the next: SamuLLM's dynamic scheduler (Fang et al., §4.3).

Flow: execution.py -> plans_now (here) -> placement.py.
"""

from collections.abc import Collection, Mapping, Sequence, Set

from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.placement import can_place
from sutler.solver.offline.stages import ExecutionPlan

Plans = Mapping[int, ExecutionPlan]


def plans_now(
    hardware: Hardware,
    *,
    running: Plans,
    wanted: Plans,
    returning: Set[int],
    waits_for: Sequence[Set[int]],
    preemption: bool = True,
) -> tuple[dict[int, ExecutionPlan], dict[int, ExecutionPlan]]:
    """(what runs from now on, what of `wanted` waits for GPUs), by node.

    First comes what runs already: models that no later stage runs (`returning` are those that one does), and what the
    new stage wants as it is. Then the rest of what is wanted, in its order. Models that would have to stop go on as
    they are where GPUs are left; without `preemption` nothing that runs stops or changes.

    No model runs without the sources that it `waits_for` (those that are not done, by node): one that is wanted
    without them is left out, and where there is no room for them, it waits with them.
    """
    wanted = runnable(wanted, waits_for)
    if not preemption:
        wanted = {**running, **{node: plan for node, plan in wanted.items() if node not in running}}
    held_back: set[int] = set()
    while True:
        plans = _chosen(hardware, _without(running, held_back), _without(wanted, held_back), returning)
        stranded = plans.keys() - runnable(plans, waits_for).keys()
        if not stranded:
            return plans, {node: plan for node, plan in wanted.items() if plans.get(node) != plan}
        held_back |= stranded


def runnable(plans: Plans, waits_for: Sequence[Set[int]]) -> dict[int, ExecutionPlan]:
    """Leaves out models whose sources are neither done nor there (SamuLLM §3)."""
    found = dict(plans)
    while alone := [node for node in found if not waits_for[node] <= found.keys()]:
        found = _without(found, alone)
    return found


def _without(plans: Plans, left_out: Collection[int]) -> dict[int, ExecutionPlan]:
    return {node: plan for node, plan in plans.items() if node not in left_out}


def _chosen(hardware: Hardware, running: Plans, wanted: Plans, returning: Set[int]) -> dict[int, ExecutionPlan]:
    plans = {
        node: plan
        for node, plan in running.items()
        if wanted.get(node) == plan or (node not in wanted and node not in returning)
    }
    for node, plan in (*wanted.items(), *running.items()):
        if node not in plans:
            _add(hardware, plans, node, plan)
    return plans


def _add(hardware: Hardware, plans: dict[int, ExecutionPlan], node: int, plan: ExecutionPlan) -> None:
    """Adds the plan where there is room for it."""
    if fit(hardware, {**plans, node: plan}):
        plans[node] = plan


def fit(hardware: Hardware, plans: Plans) -> bool:
    """Whether all of them have room at once."""
    degrees = [plan.tensor_parallel for plan in plans.values() for _ in range(plan.data_parallel)]
    return sum(degrees) <= hardware.gpus and can_place(hardware, degrees)
