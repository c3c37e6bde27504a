"""Mixtures of experts with attention data parallelism: which layouts exist, what they hold, what plans say."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates
from sutler.solver.catalog import load_gpus, resolve_model
from sutler.solver.estimate import one_layout
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan, Replica
from sutler.solver.problem import (
    Derating,
    EngineName,
    LatencyLimit,
    MeasuredRate,
    MeasuredStage,
    Objective,
    Offer,
    Problem,
    Search,
    ServedModel,
    Workload,
)
from sutler.solver.simulation.fleet import simulate
from sutler.solver.simulation.replicas import layouts_of_replica, lengths_of, simulated_replicas
from sutler.solver.simulation.requests import RequestKind, poisson
from sutler.solver.simulation.summary import summarise
from sutler.solver.throughput.architecture import layer_work
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.memory import stage_memory
from sutler.solver.throughput.prepare import prepare
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.stage_times import stage_work
from sutler.solver.throughput.stages import stage_kinds
from sutler.solver.verify import verify
from tests.solver.replanning.builders import considered
from tests.solver.throughput.builders import served

MOE = "qwen3-235b-a22b-2507"
THINKING = (500.0, 3000.0)
FOUR, EIGHT = {(1, 2), (1, 4), (2, 2)}, {(1, 8), (2, 4), (4, 2)}
LIMITS = (LatencyLimit("ttft", 90, 5.0), LatencyLimit("tpot", 90, 0.08))


def a_moe_problem(
    model: str = MOE,
    *,
    gpus: int = 8,
    engine: EngineName = "vllm",
    slo: tuple[LatencyLimit, ...] = LIMITS,
    search: Search | None = None,
    **others: Any,
) -> Problem:
    """One machine of H200s for reasoning at fp8."""
    workload = Workload("think", *THINKING, 2.0)
    asked = ServedModel("chat", resolve_model(model), "fp8", "bf16", (workload,), slo, engine=engine)
    offer = Offer("cloud", "h200", "h200-sxm", gpus, 1, 3.5 * gpus)
    given = {"h200-sxm": load_gpus()["h200-sxm"]}
    return Problem(Objective("max_throughput"), (asked,), (offer,), given, search=search or Search(), **others)


def on_h200(tensor_parallel: int, data_parallel: int) -> Layouts:
    gpu = load_gpus()["h200-sxm"]
    return one_layout(gpu, tensor_parallel=tensor_parallel, pipeline_parallel=1, data_parallel=data_parallel)


def layouts_in(candidates: Candidates) -> set[tuple[int, int]]:
    """(tensor_parallel, data_parallel) of those with ranks."""
    rows = np.flatnonzero(candidates.data_parallel > 1)
    return {(int(candidates.tensor_parallel[row, 0]), int(candidates.data_parallel[row])) for row in rows}


def found_in(problem: Problem) -> set[tuple[int, int]]:
    return layouts_in(enumerate_candidates(problem, build_supply(problem)))


@pytest.mark.parametrize(("gpus", "expected"), [(4, FOUR), (8, FOUR | EIGHT)])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_mixture_of_experts_may_have_ranks(gpus: int, expected: set[tuple[int, int]], engine: EngineName) -> None:
    assert found_in(a_moe_problem(gpus=gpus, engine=engine)) == expected


@pytest.mark.parametrize(
    "problem",
    [
        a_moe_problem("llama-3.1-70b"),
        a_moe_problem(search=Search(expert_parallel=False)),
        a_moe_problem(engine="tensorrt-llm"),
        a_moe_problem(search=Search(tensor_parallel=(1,))),
    ],
    ids=["dense", "off", "engine", "sizes"],
)
def test_others_have_none(problem: Problem) -> None:
    assert not found_in(problem)


def test_the_sizes_allowed_bound_the_gpus_of_a_replica() -> None:
    assert found_in(a_moe_problem(search=Search(tensor_parallel=(2, 4)))) == {(2, 2)}


@pytest.mark.parametrize("model", [MOE, "deepseek-v3"])
def test_ranks_hold_more_than_tensor_parallelism(model: str) -> None:
    """Four KV heads, or one latent, are kept on eight GPUs each under TP 8, and on those of one rank with ranks."""
    asked = served(model, (60_000, 2000), precision="fp8")
    source = Roofline().stages(asked)
    held = {
        ranks: prepare(
            asked,
            on_h200(8 // ranks, ranks),
            source,
            max_sequences=4096,
        ).max_batch[0, 0]
        for ranks in (1, 2, 8)
    }
    assert held[1] < held[2]
    assert held[1] * (3 if model == "deepseek-v3" else 1.5) < held[8]
    assert held[8] % 8 == 0  # every rank has its own


def test_weights_and_work_are_divided_as_they_are_spread() -> None:
    """By hand for TP 2 x DP 4: attention on 2 GPUs, experts on 8, a quarter of the sequences per rank."""
    spec = resolve_model(MOE)
    layer = layer_work(spec, "fp8", "bf16")
    degree, ranks = np.array([2]), np.array([4])
    together, prompt = stage_work(layer, degree, ranks, spread=True), stage_work(layer, degree, ranks)
    pair, eight = stage_work(layer, degree), stage_work(layer, np.array([8]))
    assert together.dense_bytes == pair.dense_bytes
    assert together.expert_bytes == eight.expert_bytes
    assert together.expert_flops == prompt.expert_flops == eight.expert_flops
    assert together.dense_flops == pair.dense_flops / 4
    assert prompt.dense_flops == pair.dense_flops
    assert together.kv_bytes == pair.kv_bytes / 4
    hidden = 2.0 * spec.hidden_size
    assert together.allreduce_bytes == pytest.approx(hidden * (2 * 2 * (1 / 2) / 4 + 2 * 3 / 4))
    assert together.allreduce_doublings == 2 * 1 + 2
    kinds, _ = stage_kinds(on_h200(2, 4))
    expected = layer.dense_params * 1.0 / 2 + layer.expert_params * 1.0 / 8
    assert stage_memory(layer, kinds).layer[0] == pytest.approx(expected)


def test_a_step_waits_for_the_rank_with_the_most_sequences() -> None:
    source = Roofline().stages(served(MOE, precision="fp8"))
    kinds, _ = stage_kinds(on_h200(1, 4))
    asked = served(MOE, THINKING, precision="fp8")
    prepared = prepare(
        asked,
        on_h200(1, 4),
        source,
        max_sequences=16,
    )
    step = source.decode(kinds, prepared.pipes.traffic, max_batch=16).per_layer[0, 0]
    assert step[1] == step[4] < step[5] == step[8] < step[16]


def test_bands_are_wider_than_those_of_tensor_parallelism() -> None:
    asked = served(MOE, precision="fp8")
    bands = [Roofline().rates(asked, on_h200(degree, 4 // degree)) for degree in (4, 1)]
    alike, spread = ((rates.rps / rates.low_rps)[0, 0] for rates in bands)
    assert spread == pytest.approx(1.2 * alike)


@pytest.mark.parametrize(
    ("model", "degree", "ranks", "reason"),
    [
        ("llama-3.1-70b", 1, 4, "no experts to spread over 4 GPUs"),
        (MOE, 1, 6, "128 experts of .* cannot be spread evenly over 6 GPUs"),
    ],
)
def test_what_cannot_be_spread_says_why(model: str, degree: int, ranks: int, reason: str) -> None:
    asked = served(model, precision="fp8")
    layouts = on_h200(degree, ranks)
    rates = Roofline().rates(asked, layouts)
    assert rates.rps[0, 0] == 0
    assert re.search(reason, Roofline().basis(asked, layouts, rates, 0, 0).detail)


@pytest.fixture(scope="module")
def planned() -> Plan:
    return solve(a_moe_problem())


def test_reasoning_on_eight_h200_runs_with_ranks(planned: Plan) -> None:
    """Two replicas of DP4·EP4, what NVIDIA's operator database ranks first as well."""
    assert planned.status == "optimal"
    for replica, gpus in zip(planned.replicas, [(0, 1, 2, 3), (4, 5, 6, 7)], strict=True):
        assert (replica.data_parallel, replica.expert_parallel) == (4, 4)
        (stage,) = replica.stages
        assert (stage.tensor_parallel, stage.gpus, stage.gpu_indices) == (1, 4, gpus)
        args = dict(replica.engine_args)
        assert args["data_parallel_size"] == 4
        assert args["enable_expert_parallel"] is True
        assert replica.max_batch is not None
        assert args["max_num_seqs"] == replica.max_batch / 4
    assert not verify(a_moe_problem(), planned)
    without = solve(a_moe_problem(search=Search(expert_parallel=False)))
    assert without.throughput_rps is not None
    assert planned.throughput_rps is not None
    assert planned.throughput_rps > 1.05 * without.throughput_rps
    assert all("expert parallelism" in found.detail for found in planned.evidence)


def _with_args(replica: Replica, **values: Any) -> Replica:
    return replace(replica, engine_args=tuple({**dict(replica.engine_args), **values}.items()))


MUTATIONS: dict[str, Callable[[Replica], Replica]] = {
    "fewer ranks": lambda r: replace(r, data_parallel=2, expert_parallel=2),
    "other split of the GPUs": lambda r: replace(
        r, data_parallel=2, stages=tuple(replace(s, tensor_parallel=2) for s in r.stages)
    ),
    "tensor parallelism": lambda r: replace(
        r, data_parallel=1, expert_parallel=1, stages=tuple(replace(s, tensor_parallel=4) for s in r.stages)
    ),
    "experts not spread": lambda r: replace(r, expert_parallel=1),
    "no ranks": lambda r: replace(r, data_parallel=0),
    "arguments of fewer ranks": lambda r: _with_args(r, data_parallel_size=2),
    "sequences of all ranks on each": lambda r: _with_args(r, max_num_seqs=r.max_batch),
}


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_verify_rejects_other_ranks(planned: Plan, mutation: Callable[[Replica], Replica]) -> None:
    changed = replace(planned, replicas=(mutation(planned.replicas[0]), *planned.replicas[1:]))
    assert verify(a_moe_problem(), changed)


@pytest.mark.parametrize(
    "problem",
    [a_moe_problem(search=Search(expert_parallel=False)), a_moe_problem(search=Search(tensor_parallel=(1, 2)))],
    ids=["off", "sizes"],
)
def test_verify_knows_what_the_search_left_out(planned: Plan, problem: Problem) -> None:
    assert any("data_parallel" in wrong for wrong in verify(problem, planned))


def test_it_keeps_its_limits_at_the_planned_load(planned: Plan) -> None:
    problem = a_moe_problem()
    model, rate_rps = problem.models[0], planned.throughput_rps or 0.0
    requests = poisson([RequestKind("chat", "think", *THINKING, rate_rps)], duration_s=1500.0, seed=1)
    replicas = simulated_replicas(
        planned.replicas,
        models={"chat": model},
        gpus=problem.gpus,
        evidence=planned.evidence,
        lengths={"chat": lengths_of(model, requests.input_tokens, requests.output_tokens)},
    )
    outcome = simulate(replicas, np.array([[0.5, 0.5]]), requests)
    found = summarise(outcome, [replica.name for replica in replicas], {"chat": model}, warm_up_s=300.0)
    assert [limit.within_fraction >= 0.9 for limit in found.models[0].limits] == [True, True]
    assert found.models[0].throughput_rps == pytest.approx(rate_rps, rel=0.05)
    # the cache of all ranks, and steps of the same seconds
    times, layouts = replicas[0].times, layouts_of_replica(planned.replicas[0], problem.gpus)
    prepared = prepare(model, layouts, Roofline().simulation_stages(model), max_sequences=4096)
    assert times.kv_tokens == pytest.approx(int(prepared.max_batch[0, 0]) * sum(THINKING), rel=0.2)
    composed = compose(prepared.pipes, Pairs(np.array([0]), np.array([0])), np.array([200.0]))
    context = THINKING[0] + THINKING[1] / 2
    assert times.line(200, context).at(context) == pytest.approx(composed.step_s[0], rel=1e-6)


def test_what_runs_with_ranks_goes_on(planned: Plan) -> None:
    """Where nothing else is for rent, and after its layout was left out of the search."""
    keeps = considered(a_moe_problem(), planned, market=[]).keep
    assert keeps.plan is not None
    assert [r.engine_args for r in keeps.plan.replicas] == [r.engine_args for r in planned.replicas]
    assert keeps.plan.throughput_rps == pytest.approx(planned.throughput_rps, rel=1e-2)  # points are sought on grids
    off = considered(a_moe_problem(search=Search(expert_parallel=False)), planned, market=[])
    assert off.keep.plan is not None
    assert {replica.data_parallel for replica in off.keep.plan.replicas} == {4}
    changed = off.option("relayout") or off.option("refleet")
    assert changed is not None
    assert changed.plan is not None
    assert {replica.data_parallel for replica in changed.plan.replicas} == {1}


def test_measured_and_derated_rows_speak_of_their_own_ranks() -> None:
    """A row for one GPU says nothing of four of them as ranks."""
    row = MeasuredRate("chat", (MeasuredStage("h200-sxm", 1),), {"think": 9.0})
    assert found_in(a_moe_problem(measured=(row,))) == FOUR | EIGHT
    derated = Derating("chat", (MeasuredStage("h200-sxm", 1),), 0.0, data_parallel=4)
    assert found_in(a_moe_problem(derated=(derated,))) == (FOUR | EIGHT) - {(1, 4)}
