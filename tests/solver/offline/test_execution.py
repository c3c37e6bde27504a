"""Executions beside references that are made by hand: one engine, requests one by one, shares of the work."""

from itertools import pairwise

import numpy as np
import pytest

from sutler.solver.offline.application import Edge, LengthDistribution
from sutler.solver.offline.costs import Costs, Shard
from sutler.solver.offline.execution import POLL_S, Start, execute
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import Execution, ExecutionPlan, RunningReplica, ScheduleStage
from sutler.solver.simulation.engine import Engine, EngineSettings
from tests.solver.offline.builders import (
    SHORT,
    a_chain,
    a_node,
    a_stage,
    app_of,
    assert_lawful,
    costs_of,
    hardware_of,
)

LONG = LengthDistribution((100, 300, 900), (0.5, 0.8, 1.0))


class Answers:
    """What an engine by itself says."""

    def __init__(self) -> None:
        self.first_s: dict[int, float] = {}
        self.finish_s: dict[int, float] = {}
        self.busy_s = 0.0
        self.preemptions = 0

    def first_token(self, request: int, at_s: float) -> None:
        self.first_s[request] = at_s

    def finished(self, request: int, at_s: float) -> None:
        self.finish_s[request] = at_s

    def preempted(self, request: int) -> None:
        self.preemptions += 1

    def busy(self, start_s: float, end_s: float, running: int, waiting: int, blocks: int) -> None:
        self.busy_s += end_s - start_s


def load_s(costs: Costs, node: int, tensor_parallel: int = 1) -> float:
    return costs.shards[node][tensor_parallel].load_s


def alone_s(shard: Shard, prompt: int, output: int) -> float:
    """The prompt, then token by token, in a replica that does nothing else."""
    seconds = shard.times.mixed_s(prompt, shard.times.attention_of(prompt), 0, 0.0)
    for token in range(1, output):
        seconds += shard.times.line(1, prompt + token).at(prompt + token)
    return seconds


def one_by_one(costs: Costs, plans: dict[int, int]) -> list[float]:
    """When each request is done, were every model up from the beginning in one replica that takes one request at a
    time, in the order in which they become ready; `plans`: tensor-parallel degrees."""
    pile, nodes = costs.pile, range(len(costs.application.nodes))
    free_s = {node: load_s(costs, node, plans[node]) for node in nodes}
    finish_s: dict[int, float] = {}
    while len(finish_s) < len(pile):
        ready = [
            (max([finish_s[parent] for parent in waits(pile, request)], default=0.0), request)
            for request in range(len(pile))
            if request not in finish_s and finish_s.keys() >= set(waits(pile, request))
        ]
        # Of all models the one that can begin first: what it begins cannot be overtaken by what is not ready yet.
        start_s, _, request = min(
            (max(at_s, free_s[int(pile.node[request])]), at_s, request) for at_s, request in ready
        )
        node = int(pile.node[request])
        shard = costs.shards[node][plans[node]]
        finish_s[request] = start_s + alone_s(
            shard, int(pile.input_tokens[request]), int(pile.output_tokens[request])
        )
        free_s[node] = finish_s[request]
    return [finish_s[request] for request in range(len(pile))]


def waits(pile: Pile, request: int) -> list[int]:
    return pile.parents_of(request)


def written_at_end(execution: Execution, stage: int, node: int) -> int:
    return execution.stages[stage].written_tokens[node]


# ---- one model


@pytest.mark.parametrize(("tensor_parallel", "max_sequences"), [(1, 256), (2, 256), (1, 16), (2, 1)])
def test_one_model_in_one_replica_is_what_the_engine_says(tensor_parallel: int, max_sequences: int) -> None:
    items = 6 if max_sequences == 1 else 300
    costs = costs_of(app_of(a_node("a", items, outputs=LONG)), max_sequences=max_sequences)
    execution = execute(costs, (a_stage(n0=(1, tensor_parallel)),))
    assert_as_by_hand(costs, execution, by_hand(costs, tensor_parallel), tensor_parallel)


def test_one_model_with_a_full_cache_is_what_the_engine_says() -> None:
    node = a_node("a", 60, spec="llama-2-7b", inputs=400, outputs=LONG)
    costs = costs_of(app_of(node), hardware_of(1, memory_gb=20.0))
    answers = by_hand(costs, 1)
    assert answers.preemptions > 0
    assert_as_by_hand(costs, execute(costs, ()), answers, 1)


def by_hand(costs: Costs, tensor_parallel: int) -> Answers:
    shard, answers, pile = costs.shards[0][tensor_parallel], Answers(), costs.pile
    settings = EngineSettings(costs.options.max_sequences)
    engine = Engine(shard.times, settings, pile.input_tokens.tolist(), pile.output_tokens.tolist(), answers)
    for request in range(len(pile)):
        engine.offer(request, shard.load_s)
    engine.advance(np.inf)
    return answers


def assert_as_by_hand(costs: Costs, execution: Execution, answers: Answers, gpus: int) -> None:
    requests = range(len(costs.pile))
    assert execution.finish_s.tolist() == pytest.approx([answers.finish_s[r] for r in requests], rel=1e-9)
    assert execution.first_token_s.tolist() == pytest.approx([answers.first_s[r] for r in requests], rel=1e-9)
    assert sum(stage.busy_gpu_s for stage in execution.stages) == pytest.approx(answers.busy_s * gpus)


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_replicas_share_the_work(replicas: int) -> None:
    costs = costs_of(app_of(a_node("a", 1600, spec="llama-2-7b", outputs=300)), hardware_of(4), max_sequences=32)
    alone = execute(costs, (a_stage(n0=(1, 1)),)).makespan_s - load_s(costs, 0)
    shared = execute(costs, (a_stage(n0=(replicas, 1)),)).makespan_s - load_s(costs, 0)
    assert alone / replicas <= shared <= 1.04 * alone / replicas


def test_a_chain_is_answered_chunk_after_chunk() -> None:
    node = a_node("a", 4, inputs=150, outputs=SHORT, chain=3)
    costs = costs_of(app_of(node, edges=[a_chain("a")]), max_sequences=1)
    execution = execute(costs, (a_stage(n0=(1, 1)),))
    assert_lawful(costs, execution)
    pile = costs.pile
    work_s = sum(
        alone_s(costs.shards[0][1], int(prompt), int(output))
        for prompt, output in zip(pile.input_tokens, pile.output_tokens, strict=True)
    )
    assert execution.makespan_s == pytest.approx(load_s(costs, 0) + work_s, rel=1e-6)


# ---- models that read others


def test_a_reader_in_the_same_stage_begins_as_soon_as_there_is_something_to_read() -> None:
    nodes = (a_node("writer", 8, outputs=LONG), a_node("reader", 0, outputs=LONG))
    costs = costs_of(app_of(*nodes, edges=[Edge("writer", "reader", copies=2)]), max_sequences=1)
    execution = execute(costs, (a_stage(n0=(1, 1), n1=(1, 1)),))
    reference_s = one_by_one(costs, {0: 1, 1: 1})
    assert execution.finish_s.tolist() == pytest.approx(reference_s, rel=1e-6)
    reader = costs.pile.of_node(1)
    assert min(execution.first_token_s[reader]) < execution.node_finish_s[0]


def test_a_pipeline_of_three_models_runs_as_request_by_request() -> None:
    nodes = (
        a_node("a", 6, outputs=LONG),
        a_node("b", 6, outputs=SHORT, slowdown=2.0),
        a_node("c", 0, outputs=SHORT, spec="qwen2.5-0.5b"),
    )
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("a", "c")]
    costs = costs_of(app_of(*nodes, edges=edges), hardware_of(3), max_sequences=1)
    execution = execute(costs, (a_stage(n0=(1, 1), n1=(1, 1), n2=(1, 1)),))
    assert execution.finish_s.tolist() == pytest.approx(one_by_one(costs, {0: 1, 1: 1, 2: 1}), rel=1e-6)


def test_a_reader_in_a_later_stage_loads_when_the_writer_is_done() -> None:
    nodes = (a_node("writer", 8), a_node("reader", 0))
    costs = costs_of(app_of(*nodes, edges=[Edge("writer", "reader")]), hardware_of(1))
    execution = execute(costs, (a_stage(n0=(1, 1)), a_stage(n1=(1, 1))))
    first, second = execution.stages
    assert 0.0 <= first.end_s - execution.node_finish_s[0] <= POLL_S
    assert second.replicas[0].ready_s == pytest.approx(first.end_s + load_s(costs, 1))
    assert min(execution.first_token_s[costs.pile.of_node(1)]) > second.replicas[0].ready_s


# ---- preemption


def test_what_is_written_is_kept_when_a_model_stops() -> None:
    nodes = (a_node("a", 600, spec="llama-2-7b", outputs=LONG), a_node("b", 20))
    costs = costs_of(app_of(*nodes), hardware_of(1), max_sequences=32)
    plan = ExecutionPlan(1, 1)
    schedule = (ScheduleStage({0: plan}, 0, 0.5), ScheduleStage({1: plan}), ScheduleStage({0: plan}))
    execution = execute(costs, schedule)
    assert_lawful(costs, execution)
    assert [list(stage.plans) for stage in execution.schedule] == [[0], [1], [0]]
    total = int(costs.pile.output_tokens[costs.pile.of_node(0)].sum())
    stopped_at = written_at_end(execution, 0, 0)
    assert 0.5 * total <= stopped_at <= 0.53 * total
    assert written_at_end(execution, 1, 0) == stopped_at
    whole_s = execute(costs, (ScheduleStage({0: plan}), ScheduleStage({1: plan}))).makespan_s
    prompts_s = 32 * max(costs.shards[0][1].times.prefill_s(1100)[1])
    assert whole_s + load_s(costs, 0) - POLL_S <= execution.makespan_s
    assert execution.makespan_s <= whole_s + load_s(costs, 0) + prompts_s + 3 * POLL_S + 6.0


@pytest.mark.parametrize("keeps", [True, False])
def test_a_model_that_gets_a_replica_more_keeps_the_one_that_runs(keeps: bool) -> None:
    nodes = (a_node("a", 900, spec="llama-2-7b", outputs=LONG), a_node("b", 5))
    costs = costs_of(app_of(*nodes), hardware_of(2), keeps_replicas=keeps, max_sequences=32)
    execution = execute(costs, (a_stage(n0=(1, 1), n1=(1, 1)), a_stage(n0=(2, 1))))
    assert_lawful(costs, execution)
    second = execution.stages[1].replicas
    assert [replica.is_loaded for replica in second] == [not keeps, True]
    assert (second[0].ready_s == execution.stages[0].replicas[0].ready_s) is keeps


def test_a_model_with_fewer_replicas_answers_everything() -> None:
    nodes = (a_node("a", 900, outputs=LONG), a_node("b", 50))
    costs = costs_of(app_of(*nodes), hardware_of(2), max_sequences=32)
    execution = execute(costs, (ScheduleStage({0: ExecutionPlan(2, 1)}, 0, 0.4), a_stage(n0=(1, 1), n1=(1, 1))))
    assert_lawful(costs, execution)
    assert [stage.plans[0].data_parallel for stage in execution.schedule if 0 in stage.plans][:2] == [2, 1]


# ---- loading and starting


def test_models_are_downloaded_one_after_the_other_in_the_order_of_their_use() -> None:
    nodes = (a_node("a", 5), a_node("b", 5, spec="qwen2.5-0.5b"))
    costs = costs_of(app_of(*nodes), hardware_of(2, download_gb_per_s=0.1))
    execution = execute(costs, (a_stage(n1=(1, 1), n0=(1, 1)),))
    ready_s = {replica.node: replica.ready_s for replica in execution.stages[0].replicas}
    b_s, a_s = costs.weights_gb[1] / 0.1, costs.weights_gb[0] / 0.1
    assert ready_s[1] == pytest.approx(b_s + load_s(costs, 1))
    assert ready_s[0] == pytest.approx(b_s + a_s + load_s(costs, 0))


def test_an_application_goes_on_from_where_it_stands() -> None:
    costs = costs_of(app_of(a_node("a", 40, outputs=100)), hardware_of(1))
    up = RunningReplica(0, 0, ((0, 0),), 90.0, is_loaded=False)
    start = Start(100.0, frozenset(range(30)), {30: 60}, (up,))
    execution = execute(costs, (a_stage(n0=(1, 1)),), start=start)
    assert execution.stages[0].start_s == 100.0
    assert not execution.stages[0].replicas[0].is_loaded
    assert execution.finish_s[:30].tolist() == [100.0] * 30
    assert execution.finish_s[30] < execution.finish_s[31]
    assert execution.stages[-1].finished_requests == (40,)
    assert execution.stages[-1].written_tokens == (4000,)


def test_stages_follow_one_another_without_a_gap() -> None:
    costs = costs_of(app_of(*(a_node(f"m{number}", 20 + number) for number in range(4))), hardware_of(1))
    stages = execute(costs, ()).stages
    assert len(stages) == 4
    assert all(earlier.end_s == later.start_s for earlier, later in pairwise(stages))
