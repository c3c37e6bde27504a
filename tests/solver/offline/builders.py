"""Tiny applications with their hardware, schedules drawn at random, and the rules that every execution obeys."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.offline.application import Application, Drawn, Edge, LengthDistribution, Node
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.hardware import Hardware, Loading, one_node
from sutler.solver.offline.plan import OfflineOptions
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import (
    ExecutedStage,
    Execution,
    ExecutionPlan,
    RunningReplica,
    Schedule,
    ScheduleStage,
)
from tests.solver.offline.placement_builders import may_lie

SHORT = LengthDistribution((20, 60, 150, 400), (0.3, 0.6, 0.9, 1.0))
SPECS = ("qwen2.5-0.5b", "llama-3.2-1b", "llama-2-7b")
QUICK_LOADING = Loading(engine_start_s=2.0, read_gb_per_s=4.0)

MODELS = load_models()
A100 = load_gpus()["a100-sxm4-80gb"]


def a_spec(name: str = "llama-3.2-1b", **others: Any) -> ModelSpec:
    return replace(MODELS[name], **others)


def hardware_of(
    gpus: int = 2, *, island_gpus: int | None = None, memory_gb: float = 80.0, **loading: Any
) -> Hardware:
    return one_node(
        replace(A100, memory_gb=memory_gb), gpus, island_gpus=island_gpus, loading=replace(QUICK_LOADING, **loading)
    )


def a_node(
    name: str = "one",
    items: int = 20,
    *,
    spec: str | ModelSpec = "llama-3.2-1b",
    inputs: int | LengthDistribution = 200,
    outputs: int | LengthDistribution = SHORT,
    chain: int | LengthDistribution | None = None,
    **others: Any,
) -> Node:
    """`items` 0: all requests come from other nodes."""
    drawn = Drawn(items, lengths(inputs), None if chain is None else lengths(chain)) if items else None
    found = a_spec(spec) if isinstance(spec, str) else spec
    return Node(name, found, "bf16", "bf16", lengths(outputs), **{"requests": drawn, **others})


def lengths(given: int | LengthDistribution) -> LengthDistribution:
    return LengthDistribution.always(given) if isinstance(given, int) else given


def app_of(*nodes: Node, edges: Sequence[Edge] = ()) -> Application:
    return Application("app", nodes, tuple(edges))


def a_chain(name: str) -> Edge:
    return Edge(name, name)


def costs_of(application: Application, hardware: Hardware | None = None, *, seed: int = 0, **options: Any) -> Costs:
    asked = OfflineOptions(seed=seed, **{"tensor_parallel": (1, 2, 4), **options})
    return Costs(application, hardware or hardware_of(), sample(application, seed=seed), asked)


def a_stage(**plans: tuple[int, int]) -> ScheduleStage:
    """`a_stage(n0=(2, 1))`: node 0 on two replicas of one GPU."""
    return ScheduleStage({int(name[1:]): ExecutionPlan(*plan) for name, plan in plans.items()})


# ---- at random


def random_application(
    draw: Random, *, most_nodes: int = 4, most_items: int = 60, depends: bool = True
) -> Application:
    """Two models at least; with `depends` some read others, share, copy, or have chains."""
    nodes, edges = list[Node](), list[Edge]()
    for position in range(draw.randint(2, most_nodes)):
        name = f"m{position}"
        reads = depends and position > 0 and draw.random() < 0.45
        own = not reads or draw.random() < 0.2
        chained = own and depends and draw.random() < 0.25
        items = draw.randint(5, most_items) // (3 if chained else 1) + 1
        nodes.append(
            a_node(
                name,
                items if own else 0,
                spec=draw.choice(SPECS),
                inputs=draw.choice((100, 400, LengthDistribution((50, 300, 1500), (0.4, 0.9, 1.0)))),
                outputs=draw.choice((SHORT, 100, LengthDistribution((5, 800), (0.9, 1.0)))),
                chain=LengthDistribution((1, 2, 4), (0.4, 0.8, 1.0)) if chained else None,
                slowdown=draw.choice((1.0, 1.0, 2.0)),
            )
        )
        if chained:
            edges.append(a_chain(name))
        if reads:
            for source in draw.sample(range(position), draw.choice((1, 1, min(2, position)))):
                edges.append(
                    Edge(
                        f"m{source}",
                        name,
                        outputs=draw.choice(("last", "every")),
                        copies=draw.choice((1, 1, 2)),
                        share_fraction=draw.choice((1.0, 1.0, 0.5)),
                    )
                )
    return app_of(*nodes, edges=edges)


def random_hardware_of(draw: Random) -> Hardware:
    gpus = draw.randint(1, 4)
    islands = draw.choice((gpus, gpus, 1, 2))
    memory_gb = 15.0 if gpus >= 2 and islands > 1 and draw.random() < 0.2 else 80.0
    return hardware_of(gpus, island_gpus=islands, memory_gb=memory_gb)


def random_costs(seed: int, **options: Any) -> Costs:
    """Options that are not named are drawn, too."""
    draw = Random(seed)
    application, hardware = random_application(draw), random_hardware_of(draw)
    asked = {
        "preemption": draw.random() < 0.6,
        "keeps_replicas": draw.random() < 0.6,
        "max_sequences": draw.choice((8, 256)),
        **options,
    }
    return costs_of(application, hardware, seed=seed, **asked)


def random_schedule(draw: Random, costs: Costs, *, splits: bool = True) -> Schedule:
    """Stages that may ask for more GPUs than there are, for models too early, or for none that is left."""
    stages = []
    for _ in range(draw.randint(1, 6)):
        nodes = draw.sample(costs.order, draw.randint(1, len(costs.order)))
        plans = {node: draw.choice(costs.plans[node]) for node in nodes}
        if splits and draw.random() < 0.4:
            stages.append(ScheduleStage(plans, draw.choice(nodes), draw.choice((0.1, 0.4, 0.7, 0.95))))
        else:
            stages.append(ScheduleStage(plans))
    return tuple(stages)


# ---- the rules


def counts_of(costs: Costs) -> list[int]:
    return [len(costs.pile.of_node(node)) for node in range(len(costs.application.nodes))]


def sources_of(costs: Costs, node: int) -> list[int]:
    names = [one.name for one in costs.application.nodes]
    return [names.index(edge.source) for edge in costs.application.sources(names[node])]


def assert_stages_valid(costs: Costs, execution: Execution) -> None:
    before: ExecutedStage | None = None
    for executed in execution.stages:
        assert executed.start_s == (before.end_s if before else 0.0)
        assert executed.end_s >= executed.start_s
        assert executed.stage.plans, "a stage in which nothing runs"
        _assert_models_may_run(costs, executed, before)
        _assert_gpus(costs, executed)
        _assert_loading(costs, executed, before)
        before = executed
    assert before is not None
    assert before.end_s == pytest.approx(execution.makespan_s)
    if not costs.options.preemption:
        assert_nothing_preempted(costs, execution)


def _assert_models_may_run(costs: Costs, executed: ExecutedStage, before: ExecutedStage | None) -> None:
    counts, done = counts_of(costs), before.finished_requests if before else [0] * len(counts_of(costs))
    for node, plan in executed.stage.plans.items():
        assert plan in costs.plans[node]
        assert plan.tensor_parallel in costs.shards[node]
        assert done[node] < counts[node], f"{node} is done and runs"
        for source in sources_of(costs, node):
            is_there = source in executed.stage.plans or done[source] == counts[source]
            assert is_there, f"{node} runs without its source {source}"


def _assert_gpus(costs: Costs, executed: ExecutedStage) -> None:
    taken = [gpu for replica in executed.replicas for gpu in replica.gpus]
    assert len(taken) == len(set(taken))
    for node, plan in executed.stage.plans.items():
        replicas = [replica for replica in executed.replicas if replica.node == node]
        assert sorted(replica.number for replica in replicas) == list(range(plan.data_parallel))
        for replica in replicas:
            assert may_lie(costs.hardware, replica.gpus, plan.tensor_parallel)
    assert {replica.node for replica in executed.replicas} == set(executed.stage.plans)


def _assert_loading(costs: Costs, executed: ExecutedStage, before: ExecutedStage | None) -> None:
    had = {_what(replica) for replica in before.replicas} if before else set()
    for replica in executed.replicas:
        if replica.is_loaded:
            load_s = costs.shards[replica.node][len(replica.gpus)].load_s
            assert replica.ready_s >= executed.start_s + load_s - 1e-9
        else:
            assert _what(replica) in had, f"{replica} was neither loaded nor there"


def _what(replica: RunningReplica) -> tuple[object, ...]:
    return replica.node, replica.number, frozenset(replica.gpus), replica.ready_s


def assert_nothing_preempted(costs: Costs, execution: Execution) -> None:
    """A model that has begun has the same plan in every stage until it is done."""
    counts, running = counts_of(costs), dict[int, ExecutionPlan]()
    for executed in execution.stages:
        for node, plan in running.items():
            assert executed.stage.plans.get(node) == plan, f"{node} was preempted at {executed.start_s}"
        ended = executed.finished_requests
        running = {node: plan for node, plan in executed.stage.plans.items() if ended[node] < counts[node]}


def assert_conserves(costs: Costs, execution: Execution) -> None:
    """Every request is answered once, after those that it waits for; nothing that is written is lost."""
    pile = costs.pile
    nodes = range(len(costs.application.nodes))
    first_s, finish_s = execution.first_token_s, execution.finish_s
    assert np.isfinite(first_s).all()
    assert (finish_s >= first_s).all()
    assert execution.makespan_s == finish_s.max()
    child = np.repeat(np.arange(len(pile)), pile.waits())
    assert (first_s[child] > finish_s[pile.parents]).all()
    last = execution.stages[-1]
    assert list(last.finished_requests) == counts_of(costs)
    assert list(last.written_tokens) == [int(pile.output_tokens[pile.of_node(node)].sum()) for node in nodes]
    for node in nodes:
        of_node = pile.of_node(node)
        assert execution.node_finish_s[node] == max(finish_s[of_node], default=0.0)
        for counted in ("finished_requests", "written_tokens"):
            over_time = [getattr(executed, counted)[node] for executed in execution.stages]
            assert over_time == sorted(over_time)
    for executed in execution.stages[:-1]:
        for node in nodes:
            ended_s = finish_s[pile.of_node(node)]
            finished = executed.finished_requests[node]
            assert (ended_s <= executed.end_s - 1e-6).sum() <= finished <= (ended_s <= executed.end_s + 1.0).sum()


def assert_gpu_seconds(costs: Costs, execution: Execution, *, step_s: float = 0.3) -> None:
    """A GPU loads or steps, one at a time; the step at the end of a stage may be the longer by one."""
    for executed in execution.stages:
        seconds = executed.end_s - executed.start_s
        used_gpu_s = executed.busy_gpu_s + executed.loading_gpu_s
        assert min(executed.busy_gpu_s, executed.loading_gpu_s) >= 0.0
        assert used_gpu_s <= executed.stage.gpus * (seconds + step_s)


def assert_loads_first(costs: Costs, execution: Execution) -> None:
    """No request is answered before a replica of its model serves, in a stage that had begun."""
    for request, finish_s in enumerate(execution.finish_s.tolist()):
        node = int(costs.pile.node[request])
        assert any(
            replica.node == node and replica.ready_s < finish_s <= executed.end_s + 1.0
            for executed in execution.stages
            if executed.start_s < finish_s
            for replica in executed.replicas
        )


def assert_lawful(costs: Costs, execution: Execution) -> None:
    assert_stages_valid(costs, execution)
    assert_conserves(costs, execution)
    assert_gpu_seconds(costs, execution)
    assert_loads_first(costs, execution)
