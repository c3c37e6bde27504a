"""The lower bound: as computed by hand, as tight as one request makes it, and lower with what is done already."""

import pytest

from sutler.solver.offline.application import Edge
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs, FlooredStepTimes, Shard
from sutler.solver.offline.execution import Start, execute
from sutler.solver.offline.stages import RunningReplica
from sutler.solver.simulation.step_times import Line
from tests.solver.offline.builders import a_chain, a_node, a_stage, app_of, costs_of, hardware_of
from tests.solver.simulation.builders import linear_prompts

# A step of b sequences takes 10 ms + b ms + b us for each token of the mean context; a prompt 1 ms for each token.
STEPS = tuple((Line(0.010 + 0.001 * sequences, 1e-6 * sequences),) for sequences in range(5))
TIMES = FlooredStepTimes(STEPS, **linear_prompts(0.001), kv_tokens=100_000)
LOAD_S = 5.0


def by_hand(costs: Costs, *shards: dict[int, Shard]) -> Costs:
    """The costs with shards of their own in place of the roofline's."""
    costs.__dict__["shards"] = shards
    return costs


def a_shard(tensor_parallel: int = 1, *, faster: float = 1.0, load_s: float = LOAD_S) -> Shard:
    return Shard(TIMES.scaled(1 / faster), tensor_parallel, load_s)


# A prompt of 100 and an answer of 11: 100 ms, then 10 steps at contexts 101 to 110, 1,055 tokens in all.
# Alone a step costs 11 ms + 1 us for each of them; in the best batch, of 4, its share is 14 / 4 ms + 1 us.
ALONE_S = 0.100 + 10 * 0.011 + 1055e-6
SHARE_S = 0.100 + 10 * 0.0035 + 1055e-6


def test_the_area_is_all_work_at_the_best_rate_on_all_gpus() -> None:
    application = app_of(a_node("a", 200, inputs=100, outputs=11), a_node("b", 100, inputs=100, outputs=11))
    costs = by_hand(costs_of(application, hardware_of(2)), {1: a_shard()}, {1: a_shard(load_s=9.0)})
    assert lower_bound(costs).area_s == pytest.approx((200 * SHARE_S + 5.0 + 100 * SHARE_S + 9.0) / 2)


def test_the_area_takes_the_cheapest_degree_of_each_model() -> None:
    # On two GPUs the work takes 1 / 1.5 of the time: 4 / 3 of the GPU-seconds. But loading takes 1 s instead of 30.
    application = app_of(a_node("a", 200, inputs=100, outputs=11))
    for load_s in (5.0, 30.0):
        shards = {1: a_shard(load_s=load_s), 2: a_shard(2, faster=1.5, load_s=1.0)}
        costs = by_hand(costs_of(application, hardware_of(4)), shards)
        expected = min(200 * SHARE_S + load_s, 2 * (200 * SHARE_S / 1.5 + 1.0))
        assert lower_bound(costs).area_s == pytest.approx(expected / 4)


def test_the_critical_path_is_the_longest_chain_alone_on_the_fastest_degree() -> None:
    # a writes three chunks of 11 tokens, whose prompts are 100, 111 and 111; b reads the last, 11 tokens, after 20 s.
    nodes = (a_node("a", 2, inputs=100, outputs=11, chain=3), a_node("b", 0, outputs=11))
    application = app_of(*nodes, edges=[a_chain("a"), Edge("a", "b")])
    costs = by_hand(costs_of(application, hardware_of(2)), {1: a_shard()}, {1: a_shard(load_s=4.0)})
    later_s = 0.111 + 10 * 0.011 + (10 * 111 + 55) * 1e-6
    reader_s = 0.011 + 10 * 0.011 + (10 * 11 + 55) * 1e-6
    chain_s = 5.0 + ALONE_S + 2 * later_s
    assert lower_bound(costs).critical_path_s == pytest.approx(chain_s + reader_s)
    faster = by_hand(
        costs_of(application, hardware_of(2)), {1: a_shard(), 2: a_shard(2, faster=2.0)}, {1: a_shard(load_s=20.0)}
    )
    assert lower_bound(faster).critical_path_s == pytest.approx(20.0 + reader_s)
    assert lower_bound(faster).seconds == pytest.approx(20.0 + reader_s)


def test_one_request_takes_exactly_the_critical_path() -> None:
    for spec in ("llama-3.2-1b", "llama-2-7b"):
        costs = costs_of(app_of(a_node("a", 1, spec=spec, inputs=500, outputs=300)), hardware_of(2))
        best_s = min(execute(costs, (a_stage(n0=(1, degree)),)).makespan_s for degree in (1, 2))
        assert best_s == pytest.approx(lower_bound(costs).critical_path_s, rel=1e-6)


def test_full_batches_of_one_model_come_near_the_area() -> None:
    costs = costs_of(app_of(a_node("a", 3000, spec="llama-2-7b", inputs=200, outputs=300)), hardware_of(1))
    bound, makespan_s = lower_bound(costs), execute(costs, ()).makespan_s
    assert bound.seconds == bound.area_s
    assert bound.area_s <= makespan_s <= 1.25 * bound.area_s


def test_what_is_done_already_is_not_in_the_bound() -> None:
    costs = by_hand(costs_of(app_of(a_node("a", 200, inputs=100, outputs=11)), hardware_of(1)), {1: a_shard()})
    up = RunningReplica(0, 0, ((0, 0),), 10.0, is_loaded=False)
    start = Start(100.0, frozenset(range(150)), {150: 10}, (up,))
    # 49 requests are left whole; of the 151st the last token is left, which needs no step after the first token.
    assert lower_bound(costs, start).area_s == pytest.approx(100.0 + 49 * SHARE_S)
    assert lower_bound(costs, start).critical_path_s == pytest.approx(100.0 + ALONE_S)
    assert execute(costs, (), start=start).makespan_s >= lower_bound(costs, start).seconds
